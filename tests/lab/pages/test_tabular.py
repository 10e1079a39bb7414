"""Tables as LaTeX."""

from __future__ import annotations

from onegate.lab.pages import tabular
from onegate.lab.pages.markup import Column, Table, count, joined, note_mark, number, tag

TABLE = Table(
    "100% of mgu_gate_after",
    [Column("unit", numeric=False), Column("test"), Column("paper")],
    [
        [
            joined("a & b", note_mark(1)),
            number(0.5, "50.00 \N{PLUS-MINUS SIGN} 0.10%"),
            "\N{EN DASH}",
        ],
        [tag("a", "x_1", href="#x"), count(1200), tag("span", "stand-in", class_="changes")],
    ],
    over=[("", 1), ("results", 2)],
    notes=["length {20} \\ $"],
)
EXPECTED = r"""% 100\% of mgu\_gate\_after
% \usepackage{booktabs}
\begin{tabular}{@{}lrr@{}}
\toprule
\multicolumn{1}{c}{} & \multicolumn{2}{c}{results} \\
\cmidrule(lr){2-3}
unit & test & paper \\
\midrule
a \& b\textsuperscript{1} & 50.00 $\pm$ 0.10\% & -- \\
x\_1 & 1,200 & (stand-in) \\
\bottomrule
\end{tabular}
\par{\footnotesize\textsuperscript{1} length \{20\} \textbackslash{} \$\par}
"""


def test_a_table_line_by_line() -> None:
    assert tabular.latex(TABLE) == EXPECTED
