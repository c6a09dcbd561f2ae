"""Text: characters, bytes, words and parts of words."""

from ...recipe.field import Field

FIELD = Field(
    title="Text",
    tokens={"text": ".tokens:Text"},
    data={
        "conll": ".readers.tagged:Columns",
        "copying_memory": ".simulate.sections:Recall",
        "lines": ".readers.labelled:Lines",
        "parallel": ".readers.pairs:Parallel",
        "pronouns": ".simulate.sections:Pronouns",
        "text": ".readers.running:TextFiles",
    },
    new={"text": ".new:TEXT"},
    importers=(".interop.huggingface:IMPORTER",),
    exporters=(".interop.export:EXPORTER",),
    renamed={"data.kind": {"columns": "conll", "recall": "copying_memory"}},
)
