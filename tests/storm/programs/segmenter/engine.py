import json
import os
import shutil
import zlib

import numpy as np


class Checkpointer:
    """output/checkpoints/<step>/ with arrays and a list of their checksums; `latest` names one."""

    def __init__(self, folder, keep=2):
        self.folder, self.keep = folder, keep

    def save(self, step, arrays, meta):
        final = os.path.join(self.folder, f"{step:07d}")
        draft = final + ".incomplete"
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(final, ignore_errors=True)
        os.makedirs(draft)
        sums = {}
        for name, array in arrays.items():
            path = os.path.join(draft, name + ".npy")
            np.save(path, array)
            with open(path, "rb") as f:
                sums[name] = zlib.crc32(f.read())
        with open(os.path.join(draft, "meta.json"), "w") as f:
            json.dump({"sums": sums, **meta}, f)
        os.rename(draft, final)
        with open(os.path.join(self.folder, "latest.tmp"), "w") as f:
            f.write(os.path.basename(final))
        os.replace(os.path.join(self.folder, "latest.tmp"), os.path.join(self.folder, "latest"))
        for old in self.steps()[: -self.keep]:
            shutil.rmtree(os.path.join(self.folder, old), ignore_errors=True)

    def steps(self):
        if not os.path.isdir(self.folder):
            return []
        return sorted(name for name in os.listdir(self.folder) if name.isdigit())

    def load(self):
        """The one that `latest` names if it is good, else the newest good one."""
        candidates = self.steps()[::-1]
        try:
            with open(os.path.join(self.folder, "latest")) as f:
                latest = f.read().strip()
            candidates.sort(key=lambda name: name != latest)
        except OSError:
            pass
        for name in candidates:
            try:
                return self.read(os.path.join(self.folder, name))
            except (OSError, ValueError, KeyError) as error:
                print(f"checkpoint {name} is not usable ({error}), trying the one before")
        return None

    def read(self, path):
        with open(os.path.join(path, "meta.json")) as f:
            meta = json.load(f)
        arrays = {}
        for name, expected in meta.pop("sums").items():
            file = os.path.join(path, name + ".npy")
            with open(file, "rb") as f:
                if zlib.crc32(f.read()) != expected:
                    raise ValueError(f"{name} has another checksum")
            arrays[name] = np.load(file)
        return arrays, meta
