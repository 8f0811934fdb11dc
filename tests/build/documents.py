"""What the Markdown documents hold: their code blocks and how each of them is marked."""
import re
import textwrap
from dataclasses import dataclass

from conftest import ROOT

DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])

# The comment in the line before a block's fence.
RUN = "<!-- run -->"
SERVER = "<!-- run: server -->"  # a command that serves until it is stopped; it is there for…
CLIENT = "<!-- run: client -->"  # …the blocks of any document that need it
NOT_RUN = re.compile(r"<!-- not run: (.{10,}) -->")


@dataclass
class Block:
    document: str  # its path in the repository
    line: int  # of the fence
    language: str
    code: str
    marker: str

    @property
    def name(self):
        return f"{self.document}-{self.line}-{self.language}"

    @property
    def not_run(self):
        """Why it is not run, or None."""
        found = NOT_RUN.fullmatch(self.marker)
        return found[1] if found else None

    @property
    def marked(self):
        return self.marker in (RUN, SERVER, CLIENT) or self.not_run is not None


def blocks_of(name, text):
    """Every fenced block, indented or not, whatever its language."""
    found, lines, i = [], text.splitlines(), 0
    while i < len(lines):
        fence = re.match(r" *(`{3,}|~{3,})\s*([^\s`]*)", lines[i])
        if not fence:
            i += 1
            continue
        end = i + 1
        while end < len(lines) and lines[end].strip() != fence[1]:
            end += 1
        code = textwrap.dedent("\n".join(lines[i + 1:end]) + "\n")
        found.append(Block(name, i + 1, fence[2] or "text", code, lines[i - 1].strip() if i else ""))
        i = end + 1
    return found


BLOCKS = [block for d in DOCUMENTS for block in blocks_of(str(d.relative_to(ROOT)), d.read_text())]
