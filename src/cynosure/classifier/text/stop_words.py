"""Words that say little about a text."""

from __future__ import annotations

# The English stop words of the Snowball project, as removed by the paper (through NLTK).
STOP_WORDS = frozenset(
    "i me my myself we our ours ourselves you your yours yourself yourselves he him his himself "
    "she her hers herself it its itself they them their theirs themselves what which who whom "
    "this that these those am is are was were be been being have has had having do does did doing "
    "a an the and but if or because as until while of at by for with about against between into "
    "through during before after above below to from up down in out on off over under again "
    "further then once here there when where why how all any both each few more most other some "
    "such no nor not only own same so than too very s t can will just don should now d ll m o re "
    "ve y ain aren couldn didn doesn hadn hasn haven isn ma mightn mustn needn shan shouldn wasn "
    "weren won wouldn don't should've aren't couldn't didn't doesn't hadn't hasn't haven't isn't "
    "mightn't mustn't needn't shan't shouldn't wasn't weren't won't wouldn't you're you've you'll "
    "you'd she's it's that'll i'm i've i'll i'd he's we're they're".split()
)
