"""Three film reviews written for this package: a warm one, a cold one, and one of two minds."""

from __future__ import annotations

REVIEWS = (
    "The first half hour is slow, and I nearly left. I am glad I stayed: the two leads are "
    "superb, the music is lovely, and the last scene is one of the most moving I have seen in "
    "years. Not a perfect film, but a wonderful one, and I would happily see it again.",
    "What a waste of a good cast. The plot makes no sense, the jokes are stupid, and the "
    "dialogue sounds as if nobody had read it aloud. I kept hoping it would get better; instead "
    "it got worse and worse. Save your money.",
    "The trailer promised a thriller and the film is a quiet family drama, so half the audience "
    "was bored. I wasn't. The script has holes and the ending is too neat, but the actors carry "
    "it, and the old man's story is touching without being silly.",
)
