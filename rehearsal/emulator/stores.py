import sys
from ministack.core.responses import AccountRegionScopedDict, AccountScopedDict


def resources():
    found = []
    for name, module in sorted(sys.modules.items()):
        if not name.startswith("ministack.services.") or module is None:
            continue
        for attribute, store in sorted(vars(module).items()):
            if isinstance(store, (AccountScopedDict, AccountRegionScopedDict)):
                for key in list(store._data):
                    found.append((name, attribute, str(key)))
    return found
