"""The tasks of ``evergrad train``: text, pictures by class, pictures made from noise."""
