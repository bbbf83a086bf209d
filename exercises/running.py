"""How a submission is run: nbgrader's step, with two things that it leaves open."""

from nbgrader.api import Gradebook
from nbgrader.converters import Autograde
from nbgrader.preprocessors import Execute
from statuses import record_ungraded, why_failed

__all__ = ["AUTOGRADE_STEPS"]


class Run(Execute):
    """Writes down why a submission could not be run, and lets no cell change an earlier one.

    Outputs from before the hidden tests are shown in the feedback; a later cell that knows the
    hidden inputs must not write into them.
    """

    def preprocess(self, nb, resources, **options):
        try:
            return super().preprocess(nb, resources, **options)
        except Exception as error:
            where = resources["nbgrader"]
            with Gradebook(where["db_url"]) as gradebook:
                record_ungraded(gradebook, where["assignment"], where["student"], why_failed(error))
            raise

    def _update_display_id(self, display_id, msg):
        """Left out: nbclient would put the new content into the outputs of earlier cells."""


AUTOGRADE_STEPS = [
    Run if step is Execute else step for step in Autograde.autograde_preprocessors.default()
]
