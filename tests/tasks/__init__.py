"""Django's tasks on our backend; the expectations are those of Django's own tests of its backends."""
