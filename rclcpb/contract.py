"""What scikit-learn asks of a classifier besides learning and answering."""

from __future__ import annotations

import inspect
from typing import Any, Self

from rclcpb.files import RclCpbError


class LikeScikitLearn:
    """Parameters by their names in the constructor, and tags."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **changes: Any) -> Self:
        known = self.get_params()
        for name, value in changes.items():
            if name not in known:
                raise RclCpbError(f"no parameter {name!r}: choose from {', '.join(known)}.")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        usual = inspect.signature(type(self)).parameters
        given = (f"{k}={v!r}" for k, v in self.get_params().items() if v != usual[k].default)
        return f"{type(self).__name__}({', '.join(given)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        tags = Tags(estimator_type="classifier", target_tags=TargetTags(required=True))
        tags.classifier_tags = ClassifierTags()
        tags.input_tags = InputTags(two_d_array=True, three_d_array=True)
        return tags
