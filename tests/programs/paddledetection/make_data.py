"""Eight pictures with a rectangle each, and their boxes. Argument: where they go."""

import json
import sys
from pathlib import Path

import numpy
from PIL import Image

place, random = Path(sys.argv[1]), numpy.random.default_rng(0)
images, boxes = [], []
for number in range(8):
    x, y, width, height = (int(value) for value in random.integers(20, 70, 4))
    pixels = random.integers(0, 60, (160, 160, 3), "uint8")
    pixels[y : y + height, x : x + width] += 150
    Image.fromarray(pixels).save(place / f"{number}.png")
    images.append({"id": number, "file_name": f"{number}.png", "width": 160, "height": 160})
    box = {"id": number, "image_id": number, "category_id": 1 + number % 2, "iscrowd": 0}
    boxes.append(box | {"bbox": [x, y, width, height], "area": width * height})
classes = [{"id": number, "name": f"class {number}"} for number in (1, 2)]
text = {"images": images, "annotations": boxes, "categories": classes}
(place / "boxes.json").write_text(json.dumps(text))
