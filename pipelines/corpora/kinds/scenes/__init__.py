"""scenes: rendered scenes with many captions each, generated here; p(image, caption) is known."""

SOURCES = ("synthetic",)
