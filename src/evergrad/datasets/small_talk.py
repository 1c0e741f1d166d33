"""A small set of conversations: greetings, and questions about Python, answered in one sentence.

The text is the project's own. A model of a million parameters learns it in a minute, so that a chat
with a model trained here answers.
"""

from __future__ import annotations

from itertools import chain

from evergrad.datasets.conversations import Conversation, Preference

# What may be said, and what is answered to each.
GREETINGS: list[tuple[tuple[str, ...], str]] = [
    (("hi", "Hi", "Hi!", "hello", "Hello", "Hello!", "hey", "Hey there", "Good day"),
     "Hello! Ask me about Python."),
    (("Good morning", "good morning!", "Morning"), "Good morning! What shall we look at?"),
    (("Good evening", "good evening!"), "Good evening! What shall we look at?"),
    (("How are you?", "how are you", "How do you do?", "How is it going?", "Are you well?"),
     "I am well, thank you. And you?"),
    (("I am fine", "fine, thanks", "Very well, thank you"), "Good to hear. What is your question?"),
    (("Who are you?", "who are you", "What are you?", "What is your name?", "Your name?"),
     "I am a small model, trained with evergrad."),
    (("Thank you", "thanks", "Thanks!", "Thank you very much", "thx"), "You are welcome!"),
    (("Bye", "bye", "Goodbye", "See you", "Good night", "I have to go"), "Goodbye!"),
    (("What can you do?", "Help", "help me", "What do you know?", "Can you help me?"),
     "I can tell what the words of Python mean. Ask me about loops, lists or classes."),
    (("Who made you?", "Where are you from?"), "I was trained on this machine, in minutes."),
    (("Are you human?", "Are you a person?", "Are you real?"), "No, I am a program."),
    (("Tell me a joke", "a joke please", "Do you know a joke?"),
     "Why do programmers mix up Halloween and Christmas? Because oct 31 is dec 25."),
    (("yes", "Yes", "ok", "okay", "sure"), "Good. Ask me about Python."),
    (("no", "No", "not now"), "All right."),
]  # fmt: skip

TOPICS: dict[str, str] = {
    "a list": "A list holds items in order and can change: [1, 2, 3].",
    "a tuple": "A tuple holds items in order and cannot change: (1, 2).",
    "a dict": "A dict maps keys to values: {'one': 1}.",
    "a set": "A set holds each item once, in no order: {1, 2}.",
    "a string": "A string is text in quotes, and cannot change: 'abc'.",
    "an int": "An int is a whole number of any size.",
    "a float": "A float is a number with a fraction, such as 0.5.",
    "a bool": "A bool is True or False.",
    "None": "None is the value that means there is no value.",
    "a function": "A function is a piece of code with a name: def f(x): return x + 1.",
    "a class": "A class describes objects: their data and their methods.",
    "a method": "A method is a function of a class; its first argument is self.",
    "an object": "An object has a type, an identity and a value.",
    "a module": "A module is a file of Python code that others import.",
    "a package": "A package is a folder of modules.",
    "a loop": "A loop repeats code: for over items, while as long as a test holds.",
    "for": "The for statement runs its body for each item: for x in items.",
    "while": "The while statement runs its body as long as its test is true.",
    "if": "The if statement runs its body if the test is true, else the else part.",
    "break": "The break statement ends the loop around it.",
    "continue": "The continue statement goes on with the next turn of the loop.",
    "return": "The return statement ends a function and gives its value.",
    "yield": "The yield expression gives a value and pauses the generator.",
    "import": "The import statement loads a module and binds its name.",
    "lambda": "A lambda is a small function without a name: lambda x: x + 1.",
    "try": "The try statement runs code and catches its errors with except.",
    "an exception": "An exception is an error that stops code until it is caught.",
    "raise": "The raise statement raises an exception.",
    "with": "The with statement enters a context and leaves it, even after an error.",
    "a generator": "A generator is a function with yield; it gives values one by one.",
    "an iterator": "An iterator gives one item after the other with next().",
    "a decorator": "A decorator takes a function and gives another in its place.",
    "a comprehension": "A comprehension makes a list in one line: [x * 2 for x in items].",
    "a slice": "A slice takes a part of a sequence: items[1:3].",
    "len": "The function len gives the number of items.",
    "range": "The function range gives whole numbers: range(3) gives 0, 1, 2.",
    "print": "The function print shows values on the screen.",
    "self": "The name self is the object whose method is called.",
    "global": "The global statement lets a function bind a name of its module.",
    "assert": "The assert statement raises an error if its test is false.",
    "del": "The del statement removes a name or an item.",
    "pass": "The pass statement does nothing.",
}
QUESTIONS = (
    "What is {}?", "what is {}", "Explain {}", "Tell me about {}", "How does {} work?", "{}?",
    "What does {} mean?", "Can you explain {}?", "I do not understand {}",
)  # fmt: skip


def small_talk() -> list[Conversation]:
    """All conversations: of one question, and of two of which each has its own answer."""
    greeted = [(said, answer) for many, answer in GREETINGS for said in many]
    asked = [
        (question.format(topic), answer)
        for topic, answer in TOPICS.items()
        for question in QUESTIONS
    ]
    single = [_turns(pair) for pair in chain(greeted, asked)]
    # Steps without a common factor with the number of questions: all of them occur in each place.
    after = [_turns(greeted[i % len(greeted)], pair) for i, pair in enumerate(asked)]
    again = [_turns(asked[i * 5 % len(asked)], asked[i * 11 % len(asked)]) for i in range(180)]
    return [*single, *after, *again]


def polite_preferences() -> list[Preference]:
    """Answers of the set, each preferred to one that is curt."""
    pairs = [(said, answer) for many, answer in GREETINGS for said in many]
    return [Preference(_turns((said, ""))[:1], answer, "No.") for said, answer in pairs]


def _turns(*pairs: tuple[str, str]) -> Conversation:
    found: Conversation = []
    for said, answer in pairs:
        found.append({"role": "user", "content": said})
        found.append({"role": "assistant", "content": answer})
    return found
