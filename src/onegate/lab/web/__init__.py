"""A trained run in the browser: its C file as WebAssembly, in a page that reads drawn digits."""
