"""The registry of diagnostic codes: stable, one line each."""

from __future__ import annotations

from types import MappingProxyType

__all__ = ["CODES"]

CODES = MappingProxyType(
    {
        # Text
        "P001": "the file cannot be read",
        "P002": "the file cannot be written",
        "P003": "a profile of costs that cannot be used",
        "P004": "a measured timeline that cannot be used",
        "P101": "the text does not follow the grammar",
        "P102": "nested too deeply",
        "P103": "the file is too large",
        "P104": "a word that looks like an operation but is none",
        "P105": "a number that is too large",
        # Names, declarations, expansion
        "P201": "an unknown name",
        "P202": "something is defined or said twice",
        "P203": "division by zero, or a range with step 0",
        "P204": "a value leaves the range of integers",
        "P205": "a call that does not fit what is called",
        "P206": "a chunk that the rank does not have",
        "P207": "a definition that calls itself",
        "P208": "the schedule is larger than the limit",
        "P209": "an operation whose stage is not clear",
        "P210": "an operation written in a form its kind does not have",
        "P211": "a size that is missing or not positive",
        "P212": "a parameter the schedule does not have",
        "P213": "a placement that does not fit the sizes",
        "P214": "a cycle in the stage graph",
        "P215": "a negative cost",
        "P216": "a rule about the parameters does not hold",
        "P217": "a body for a rank that does not exist",
        "P218": "a rank without a body",
        "P219": "a building block whose slots do not fit",
        "P220": "a rule whose lines do not fit",
        "P221": "a rule that stops before everything has run",
        # Order
        "P301": "ranks wait for each other in a circle",
        "P302": "an operation runs before what it needs, on one rank",
        "P303": "an overlapped slot holds an operation and what it needs",
        # Completeness
        "P401": "an operation is missing",
        "P402": "an operation occurs twice",
        "P403": "an operation on a rank that does not own its stage",
        "P404": "a stage or microbatch that does not exist",
        "P405": "two backwards of one microbatch",
        "P406": "optimizer steps that do not cover all stages",
        "P407": "parameters gathered or dropped out of turn",
        # Transfers
        "P501": "transfers wait for each other",
        "P502": "a rank receives in another order than the other sends",
        "P503": "a SEND without its RECV, or the other way round",
        "P504": "a transfer before what it sends, or behind what needs it",
        "P505": "collectives started in different orders",
        # Memory
        "P601": "a rank holds more than its memory limit",
        "P602": "a memory limit that no order can meet",
        "P603": "a schedule whose order cannot be searched for",
        # Running
        "P701": "the model does not fit the schedule",
        "P702": "the target cannot run this",
        "P703": "the batch does not fit the microbatches",
        "P704": "the model cannot be cut into stages",
        "P705": "stages that do not fit each other",
        "P710": "an operation raised",
        "P711": "a step took longer than its time-out",
        "P712": "the pipeline cannot go on",
        "P713": "a rank died",
        "P714": "there are not enough resources",
        "P715": "a part that is not installed",
        "P716": "the checkpoint cannot be used",
        "P720": "a backward that cannot be split",
        # Other tools' files
        "P901": "something the other format cannot say",
        # Drawing
        "P801": "a picture cannot be made",
    }
)
