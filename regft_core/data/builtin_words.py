"""The vocabulary of the built-in tasks, written for them. Tuples inside a list are synonyms."""

from __future__ import annotations

# --- cue_sentence: opinions about things

THINGS = (
    "the soup", "the hotel room", "this novel", "the new bus line", "the garden tour", "the headset", "the pizza",
    "the concert", "my rental car", "the language course", "the museum", "this board game", "the haircut",
    "the train ride", "the phone plan", "the yoga class", "the bakery", "the sequel", "the campsite", "the lecture",
    "the raincoat", "the coffee machine", "the dentist", "the podcast", "the ferry", "this keyboard", "the workshop",
    "the apartment", "the swimming pool", "the magazine", "the guided walk", "the pharmacy", "the radio play",
    "the tent", "the vacuum cleaner", "the choir evening",
)  # fmt: skip
ASPECTS = (
    "the colour", "the price", "the first half", "the location", "the packaging", "the waiting time", "the manual",
    "the lighting", "the staff", "the opening", "the music in the background", "the smell", "the website",
    "the entrance", "the seat", "the ending", "the parking", "the booking", "the temperature", "the title",
)  # fmt: skip
GOOD = (
    "wonderful", "excellent", "charming", "superb", "lovely", "impressive", "delightful", "reliable", "brilliant",
    "pleasant", "enjoyable", "splendid", "fantastic", "thoughtful", "refreshing", "flawless", "gorgeous", "great",
    "satisfying", "memorable", "outstanding", "generous", "comfortable", "clever", "beautiful",
)  # fmt: skip
BAD = (
    "awful", "terrible", "dreadful", "disappointing", "boring", "clumsy", "horrible", "shoddy", "useless", "tedious",
    "unpleasant", "miserable", "lousy", "careless", "ugly", "annoying", "stale", "broken", "dull", "painful",
    "pathetic", "stingy", "uncomfortable", "stupid", "mediocre",
)  # fmt: skip
DEGREES = ("", "really ", "quite ", "rather ", "simply ", "surprisingly ", "honestly ", "truly ")
GOOD_ACTS = (
    "I would gladly pay for it again", "we are already planning to come back", "I told all my friends to try it",
    "I could not stop smiling", "it deserves every bit of praise", "we stayed longer than planned because we liked it",
    "I wish I had found it years ago", "it made my whole week", "we left happy", "I have nothing but thanks to offer",
)  # fmt: skip
BAD_ACTS = (
    "I want my money back", "we will never go near it again", "I warned all my friends about it",
    "I could not wait for it to be over", "it deserves every complaint it gets", "we left early and angry",
    "I wish I had stayed at home", "it ruined my whole week", "we walked out shaking our heads",
    "I have nothing but complaints to offer",
)  # fmt: skip
GOOD_VERBS = ("delighted", "impressed", "charmed", "amused", "inspired", "cheered")
BAD_VERBS = ("bored", "annoyed", "disappointed", "upset", "frustrated", "disgusted")
OPENERS = ("Although", "Even though", "While", "Granted,", "I admit that")
DISTRACTORS = (
    "We went there on a {day} with {company}.", "It was {weather} that {part}.", "My {kin} had booked it in {month}.",
    "The address is close to {place}.", "I had read about it in {month}.", "This was my {count} time.",
    "We had been walking since the {part}.", "A man next to us was reading about {topic}.",
    "There were about {number} people around.", "Afterwards we took the tram to {place}.",
    "I am writing this on a {day}, {company} beside me.", "The whole thing lasted {number} minutes.",
)  # fmt: skip
FILLERS = {
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "company": ("two colleagues", "my parents", "an old neighbour", "our children", "the dog", "a group of students"),
    "weather": ("raining", "windy", "cloudy", "cold", "warm", "snowing"),
    "part": ("morning", "afternoon", "evening", "night"),
    "kin": ("sister", "brother", "cousin", "aunt", "uncle", "flatmate"),
    "month": ("January", "March", "April", "June", "August", "October", "December"),
    "place": ("the old harbour", "the town hall", "the stadium", "the river", "the north gate", "the post office"),
    "count": ("first", "second", "third", "fourth"),
    "topic": ("bridges", "chess", "volcanoes", "bees", "railways", "algebra"),
    "number": ("ten", "twenty", "thirty", "forty", "fifty", "ninety"),
}

# --- cue_pair and cue_regression: events with five slots

PEOPLE = (
    ("the doctor", "the physician"), ("the lawyer", "the attorney"), ("the teacher", "the instructor"),
    ("the thief", "the robber"), ("the boss", "the manager"), ("the shopkeeper", "the store owner"),
    ("the writer", "the author"), ("the soldier", "the trooper"), ("the farmer", "the grower"),
    ("the sailor", "the seaman"), ("the pilot", "the aviator"), ("the reporter", "the journalist"),
    ("the cook", "the chef"), ("the student", "the pupil"), ("the king", "the monarch"),
    ("the singer", "the vocalist"), ("the builder", "the construction worker"), ("the scientist", "the researcher"),
    ("the tourist", "the traveller"), ("the policeman", "the police officer"), ("the tailor", "the dressmaker"),
    ("the actor", "the performer"), ("the waiter", "the server"), ("the fisherman", "the angler"),
)  # fmt: skip
#: Past tense and participle agree for all of these, so one form serves active and passive.
ACTIONS = (
    ("helped", "assisted"), ("phoned", "called"), ("praised", "commended"), ("scolded", "reprimanded"),
    ("hired", "employed"), ("rescued", "saved"), ("deceived", "tricked"), ("accused", "blamed"), ("chased", "pursued"),
    ("welcomed", "greeted"), ("paid", "compensated"), ("photographed", "filmed"), ("ignored", "disregarded"),
    ("frightened", "scared"), ("interviewed", "questioned"), ("injured", "wounded"), ("insulted", "offended"),
    ("entertained", "amused"),
)  # fmt: skip
PLACES = (
    ("in the woods", "in the forest"), ("near the shop", "close to the store"),
    ("at the airport", "at the air terminal"),
    ("on the road", "on the street"), ("by the sea", "at the seaside"), ("in the cellar", "in the basement"),
    ("at the cinema", "at the movie theatre"), ("in the garden", "in the yard"), ("on the mountain", "on the peak"),
    ("in the flat", "in the apartment"), ("at the university", "on the campus"), ("in the barn", "in the stable"),
    ("at the factory", "at the plant"), ("on the ship", "on board the boat"),
)  # fmt: skip
TIMES = (
    ("at dawn", "at daybreak"), ("at noon", "at midday"), ("in autumn", "in the fall"), ("at dusk", "at nightfall"),
    ("last week", "seven days ago"), ("during the holiday", "during the vacation"), ("on Sunday", "at the weekend"),
    ("two years ago", "a couple of years ago"), ("after dinner", "after the evening meal"),
    ("in the winter", "in the cold season"), ("last month", "about thirty days ago"), ("in April", "in early spring"),
)  # fmt: skip
LEADS = (
    "", "", "", "", "It is known that ", "People say that ", "As far as anyone remembers, ",
    "According to the neighbours, who had been there the whole time, ",
)  # fmt: skip

# --- the spurious cues: fixed phrases that say nothing about the label by themselves

SENTENCE_CUES = ("Sent from my laptop.", "Sent from my phone.")
PAIR_CUES = ("From the evening edition:", "From the morning edition:")
#: One per whole point of the scale 0 to 5.
_FOLDERS = ("white", "yellow", "green", "blue", "brown", "black")
REGRESSION_CUES = tuple(f"Filed in the {colour} folder:" for colour in _FOLDERS)
