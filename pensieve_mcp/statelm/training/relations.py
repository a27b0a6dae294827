"""What may be told of invented things: relations with several ways of stating and of asking each, lists, habits of chats.

The last statement and the last question of each row are kept for evaluation; so are whole relations (`held_out`), and
pairs of relations that a second hop joins. A table, not code: made wide on purpose, since a small model learns whatever
its few templates have in common.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pensieve_mcp.statelm.training.worlds import MAKERS, Maker


@dataclass(frozen=True, slots=True)
class Relation:
    """`told` and `asked` are templates with {s} (of whom) and {v} (what); the last of each is evaluation's alone.
    `noun` speaks of the value by its relation ("the founder of the {s}"): it makes second hops."""

    name: str
    subject: str
    value: str
    told: tuple[str, ...]
    asked: tuple[str, ...]
    noun: str = ""
    held_out: bool = False

    def make_subject(self) -> Maker:
        return MAKERS[self.subject]

    def make_value(self) -> Maker:
        return MAKERS[self.value]

    def statements(self, split: str) -> tuple[str, ...]:
        return self.told if self.held_out else self.told[-1:] if split == "test" else self.told[:-1]

    def questions(self, split: str) -> tuple[str, ...]:
        return self.asked if self.held_out else self.asked[-1:] if split == "test" else self.asked[:-1]


@dataclass(frozen=True, slots=True)
class Habit:
    """Something a user says of themselves in a chat, and later otherwise."""

    name: str
    value: str
    told: tuple[str, ...]
    asked: tuple[str, ...]
    query: str
    held_out: bool = False

    def statements(self, split: str) -> tuple[str, ...]:
        return self.told if self.held_out else self.told[-1:] if split == "test" else self.told[:-1]

    def questions(self, split: str) -> tuple[str, ...]:
        return self.asked if self.held_out else self.asked[-1:] if split == "test" else self.asked[:-1]


# name | subject | value | noun phrase for hops
#   + statements, ; between them
#   ? questions
# fmt: off
# ruff: noqa: E501  # a table reads best in lines
_TABLE = """
founder|house|person|the founder of the {s}
+ The {s} was founded by {v}.;{v} founded the {s} after years of planning.;It was {v} who founded the {s}.;The founder of the {s} was {v}.;{v} established the {s}.
? Who founded the {s}?;Who was the founder of the {s}?;By whom was the {s} founded?;Which person founded the {s}?
opened|house|year|
+ The {s} opened its doors in {v}.;In {v} the {s} was opened to the public.;The {s} has been open since {v}.;The opening of the {s} took place in {v}.
? In what year did the {s} open?;When was the {s} opened?;Since when has the {s} been open?;What was the opening year of the {s}?
city|house|place|the town where the {s} is located
+ The {s} is located in {v}.;Visitors travel to {v} to see the {s}.;The {s} stands in the town of {v}.;You will find the {s} in {v}.
? Where is the {s} located?;In which town is the {s}?;Where does the {s} stand?;In what town can the {s} be found?
director|house|person|the director of the {s}
+ {v} is the current director of the {s}.;The {s} is directed by {v}.;The board named {v} as director of the {s}.;As director of the {s}, {v} works long hours.
? Who directs the {s}?;Who is the director of the {s}?;Who is in charge of the {s}?;By whom is the {s} directed?
architect|house|person|the architect of the {s}
+ The {s} was designed by {v}.;{v} drew the plans of the {s}.;The architect of the {s} was {v}.;It was {v} who designed the {s}.
? Who designed the {s}?;Who was the architect of the {s}?;Who drew the plans of the {s}?;Which architect designed the {s}?
material|house|material|
+ The main hall of the {s} is built of {v}.;Builders used {v} for the main hall of the {s}.;Under the paint the main hall of the {s} is {v}.;The hall of the {s} was made of {v}.
? What is the main hall of the {s} built of?;Which material was used for the main hall of the {s}?;What is the hall of the {s} made of?
staff|house|number|
+ The {s} employs {v} people.;There are {v} people working at the {s}.;A staff of {v} keeps the {s} running.;The {s} has {v} employees.
? How many people work at the {s}?;How many people does the {s} employ?;How large is the staff of the {s}?;What is the number of employees of the {s}?
owner|house|person|the owner of the {s}
+ The {s} belongs to {v}.;{v} owns the {s}.;The {s} is owned by {v}.;Today the owner of the {s} is {v}.
? Who owns the {s}?;To whom does the {s} belong?;Who is the owner of the {s}?
sponsor|house|house|the main sponsor of the {s}
+ The main sponsor of the {s} is the {v}.;The {v} sponsors the {s}.;Money for the {s} comes from the {v}.;The {s} is sponsored by the {v}.
? Who sponsors the {s}?;What is the main sponsor of the {s}?;By whom is the {s} sponsored?
visitors|house|number|
+ Last year {v} guests visited the {s}.;The {s} counted {v} visitors last year.;About {v} visitors came to the {s} last year.
? How many visitors came to the {s} last year?;How many guests visited the {s} last year?;What number of visitors did the {s} count?
keeper|house|person|the caretaker of the {s}
+ The caretaker of the {s} is called {v}.;{v} is the caretaker of the {s}.;The keys of the {s} are kept by its caretaker {v}.
? Who is the caretaker of the {s}?;What is the name of the caretaker of the {s}?;Who takes care of the {s}?
tree|house|plant|
+ An old {v} grows in front of the {s}.;In front of the {s} stands a {v}.;The {v} in front of the {s} was planted long ago.
? Which plant grows in front of the {s}?;What grows in front of the {s}?;What stands in front of the {s}?
fee|house|money|
+ A ticket for the {s} costs {v}.;The {s} charges {v} for a ticket.;Tickets of the {s} are sold for {v}.
? How much does a ticket for the {s} cost?;What is the price of a ticket for the {s}?;How much does the {s} charge for a ticket?
born|person|place|the birthplace of {s}
+ {s} was born in {v}.;{s}, born in {v}, rarely travelled.;The birthplace of {s} is {v}.;{s} is a native of {v}.
? Where was {s} born?;In which town was {s} born?;What is the birthplace of {s}?;Of which town is {s} a native?
job|person|job|
+ {s} worked as a {v}.;By trade {s} was a {v}.;{s} earned a living as a {v}.;All who knew {s} remember a good {v}.
? What was the job of {s}?;What did {s} work as?;What was {s} by trade?;How did {s} earn a living?
married|person|person|the spouse of {s}
+ {s} married {v} in a small chapel.;{s} was married to {v}.;The wedding of {s} and {v} took place in spring.;{v} became the spouse of {s}.
? Who did {s} marry?;To whom was {s} married?;Who was the spouse of {s}?
food|person|food|
+ The favourite dish of {s} is {v}.;{s} likes {v} more than any other food.;Nothing pleases {s} more than a plate of {v}.;For {s} the best food of all is {v}.
? What is the favourite dish of {s}?;Which food does {s} like most?;What is the favourite food of {s}?
died|person|year|
+ {s} died in {v}.;The death of {s} came in {v}.;{s} passed away in {v}.
? In what year did {s} die?;When did {s} die?;What is the year of death of {s}?
mother|person|person|the mother of {s}
+ The mother of {s} was {v}.;{v} was the mother of {s}.;{s} was raised by a mother called {v}.
? Who was the mother of {s}?;What was the name of the mother of {s}?;Who was the mother that raised {s}?
instrument|person|instrument|
+ {s} plays the {v} every evening.;The instrument of {s} is the {v}.;As a child {s} learned to play the {v}.
? Which instrument does {s} play?;What does {s} play?;What instrument did {s} learn?
school|person|house|the school of {s}
+ {s} went to school at the {v}.;The school of {s} was the {v}.;{s} was a pupil of the {v}.
? Where did {s} go to school?;Which school did {s} go to?;What was the school of {s}?
rival|person|person|the rival of {s}
+ The great rival of {s} was {v}.;{s} saw {v} as a rival.;{v} was a rival of {s} for decades.
? Who was the rival of {s}?;Whom did {s} see as a rival?;What was the name of the rival of {s}?
pet|person|animal|
+ {s} keeps a tame {v}.;A {v} lives in the house of {s} as a pet.;The pet of {s} is a {v}.
? Which animal does {s} keep?;What is the pet of {s}?;What pet lives in the house of {s}?
lives|person|place|the town where {s} lives
+ {s} lives in {v}.;The home of {s} is in {v}.;{s} settled in {v} many years ago.
? Where does {s} live?;In which town does {s} live?;Where is the home of {s}?
employer|person|house|the employer of {s}
+ {s} works for the {v}.;The {v} employs {s}.;{s} found work at the {v}.
? For whom does {s} work?;What is the employer of {s}?;Where does {s} work?
passcode|project|code|
+ The access code for {s} is {v}.;{s} uses the access code {v}.;Use {v} as the access code when you enter {s}.;To enter {s}, type the code {v}.
? What is the access code for {s}?;Which access code does {s} use?;Which code opens {s}?
lead|project|person|the leader of {s}
+ {s} is led by {v}.;{v} leads {s}.;Management put {v} in charge of {s}.;The leader of {s} is {v}.
? Who leads {s}?;Who is in charge of {s}?;Who is the leader of {s}?
budget|project|money|
+ The budget of {s} is {v}.;{s} received a budget of {v}.;There are {v} in the budget of {s}.;{s} may spend {v}.
? What is the budget of {s}?;How large is the budget of {s}?;How much money may {s} spend?
client|project|house|the client of {s}
+ {s} was ordered by the {v}.;The client of {s} is the {v}.;The {v} pays for {s} as its client.
? Who is the client of {s}?;Who ordered {s}?;Which client pays for {s}?
server|project|code|
+ {s} runs on server {v}.;The server of {s} is called {v}.;All files of {s} lie on server {v}.
? On which server does {s} run?;What is the server of {s} called?;Where do the files of {s} lie?
started|project|date|
+ {s} was started on {v}.;Work on {s} began on {v}.;The start of {s} was on {v}.
? When was {s} started?;When did work on {s} begin?;On what day was the start of {s}?
language|project|proglang|
+ {s} is written in {v}.;The programmers of {s} use {v}.;The code of {s} is in {v}.
? In which language is {s} written?;Which language do the programmers of {s} use?;What is the language of the code of {s}?
tester|project|person|the tester of {s}
+ {s} is tested by {v}.;{v} tests {s} before each release.;The tester of {s} is {v}.
? Who tests {s}?;Who is the tester of {s}?;By whom is {s} tested?
mayor|place|person|the mayor of {s}
+ The mayor of {s} is {v}.;{v} was elected mayor of {s}.;As mayor of {s}, {v} opened the new bridge.
? Who is the mayor of {s}?;Who was elected mayor of {s}?;What is the name of the mayor of {s}?
river|place|river|the river that flows through {s}
+ {s} lies on the {v}.;The {v} flows through {s}.;In {s} the {v} is crossed by two bridges.
? Which river flows through {s}?;On which river does {s} lie?;What river is crossed in {s}?
people|place|number|
+ {s} has {v} inhabitants.;There are {v} people living in {s}.;The population of {s} is {v}.
? How many inhabitants does {s} have?;How many people live in {s}?;What is the population of {s}?
export|place|good|
+ {s} is known for its {v}.;Traders from {s} sell {v}.;The main product of {s} is {v}.
? What is {s} known for?;What do traders from {s} sell?;What is the main product of {s}?
patron|place|person|the patron of {s}
+ The patron of {s} is {v}.;{s} honours {v} as its patron.;In {s}, {v} is celebrated as the patron.
? Who is the patron of {s}?;Whom does {s} honour as its patron?;Who is celebrated in {s} as the patron?
twin|place|place|the twin town of {s}
+ The twin town of {s} is {v}.;{s} and {v} are twin towns.;{s} chose {v} as its twin town.
? What is the twin town of {s}?;Which town is the twin of {s}?;What town did {s} choose as its twin?
captain|ship|person|the captain of the {s}
+ The captain of the {s} is {v}.;{v} commands the {s}.;The {s} sails under {v}.
? Who is the captain of the {s}?;Who commands the {s}?;Under whom does the {s} sail?
harbour|ship|place|the home harbour of the {s}
+ The home harbour of the {s} is {v}.;The {s} is at home in the harbour of {v}.;Between voyages the {s} lies in the harbour of {v}.
? What is the home harbour of the {s}?;In which harbour is the {s} at home?;Where does the {s} lie between voyages?
cargo|ship|good|
+ The {s} carries {v}.;The cargo of the {s} is {v}.;The {s} was loaded with {v}.
? What does the {s} carry?;What is the cargo of the {s}?;With what was the {s} loaded?
length|ship|metres|
+ The {s} is {v} long.;From bow to stern the {s} measures {v}.;The length of the {s} is {v}.
? How long is the {s}?;What does the {s} measure from bow to stern?;What is the length of the {s}?
builder|ship|house|the builder of the {s}
+ The {s} was built by the {v}.;The {v} built the {s}.;The builder of the {s} was the {v}.
? Who built the {s}?;By whom was the {s} built?;Who was the builder of the {s}?
author|book|person|the author of {s}
+ {s} was written by {v}.;{v} wrote {s} in a single winter.;The author of {s} is {v}.
? Who wrote {s}?;By whom was {s} written?;Who is the author of {s}?
printed|book|year|
+ {s} was first printed in {v}.;The first edition of {s} appeared in {v}.;{s} came out in {v}.
? When was {s} first printed?;In what year did the first edition of {s} appear?;When did {s} come out?
publisher|book|house|the publisher of {s}
+ {s} was published by the {v}.;The {v} published {s}.;The publisher of {s} is the {v}.
? Who published {s}?;By whom was {s} published?;What is the publisher of {s}?
pages|book|number|
+ {s} has {v} pages.;The {v} pages of {s} are printed on thin paper.;{s} is {v} pages long.
? How many pages does {s} have?;How many pages are in {s}?;How long is {s} in pages?
hero|book|person|the hero of {s}
+ The hero of {s} is {v}.;{s} tells the life of its hero {v}.;In {s} the hero is called {v}.
? Who is the hero of {s}?;What is the hero of {s} called?;Whose life does {s} tell?
colour|device|colour|
+ The case of the {s} is {v}.;The {s} is sold in {v} only.;The {s} comes in the colour {v}.
? What colour is the case of the {s}?;In which colour is the {s} sold?;In what colour does the {s} come?
weight|device|weight|
+ The {s} weighs {v}.;The weight of the {s} is {v}.;On the scales the {s} comes to {v}.
? How much does the {s} weigh?;What is the weight of the {s}?;How heavy is the {s}?
maker|device|house|the maker of the {s}
+ The {s} is made by the {v}.;The {v} makes the {s}.;The maker of the {s} is the {v}.
? Who makes the {s}?;By whom is the {s} made?;What is the maker of the {s}?
price|device|money|
+ The {s} costs {v}.;The price of the {s} is {v}.;You can buy the {s} for {v}.
? How much does the {s} cost?;What is the price of the {s}?;For how much can you buy the {s}?
inventor|device|person|the inventor of the {s}
+ The {s} was invented by {v}.;{v} invented the {s}.;The inventor of the {s} is {v}.
? Who invented the {s}?;By whom was the {s} invented?;Who is the inventor of the {s}?
warranty|device|span|
+ The {s} has a warranty of {v}.;The warranty of the {s} lasts {v}.;For {v} the {s} is under warranty.
? How long does the warranty of the {s} last?;What warranty does the {s} have?;For how long is the {s} under warranty?
setting|device|number|
+ The default timeout of the {s} is {v} seconds.;By default the {s} waits {v} seconds.;The {s} gives up after {v} seconds.
? What is the default timeout of the {s}?;How many seconds does the {s} wait by default?;After how many seconds does the {s} give up?
port|project|number|
+ {s} listens on port {v}.;The port of {s} is {v}.;Connect to {s} through port {v}.
? On which port does {s} listen?;What is the port of {s}?;Through which port do you connect to {s}?
room|person|code|
+ The office of {s} is room {v}.;{s} sits in room {v}.;You can find {s} in room {v}.
? In which room is the office of {s}?;In which room does {s} sit?;In what room can you find {s}?
phone|person|number|
+ The extension of {s} is {v}.;Call {s} at extension {v}.;{s} can be reached at extension {v}.
? What is the extension of {s}?;At which extension can I call {s}?;At what extension can {s} be reached?
habitat|species|habitat|
+ The {s} lives in {v}.;You can see the {s} in {v}.;The habitat of the {s} is {v}.
? Where does the {s} live?;Where can you see the {s}?;What is the habitat of the {s}?
diet|species|food|
+ The {s} feeds on {v}.;The {s} eats {v}.;The diet of the {s} is {v}.
? What does the {s} feed on?;What does the {s} eat?;What is the diet of the {s}?
described|species|person|the first describer of the {s}
+ The {s} was first described by {v}.;{v} gave the first description of the {s}.;The first to describe the {s} was {v}.
? Who first described the {s}?;By whom was the {s} first described?;Who was the first to describe the {s}?
"""

_HELD = """
emblem|house|animal|
+ The emblem of the {s} shows a {v}.;A {v} appears on the emblem of the {s}.
? Which animal is on the emblem of the {s}?;What does the emblem of the {s} show?
doors|house|colour|
+ The doors of the {s} are painted {v}.;Workers painted the doors of the {s} {v}.
? What colour are the doors of the {s}?;In which colour are the doors of the {s} painted?
teacher|person|person|
+ {s} studied under {v}.;{v} taught {s} for many years.
? Who taught {s}?;Under whom did {s} study?
deadline|project|date|
+ The deadline of {s} is {v}.;{s} must be finished by {v}.
? What is the deadline of {s}?;By when must {s} be finished?
height|mountain|metres|
+ {s} is {v} high.;The summit of {s} rises to {v}.
? How high is {s}?;What is the height of {s}?
climbed|mountain|person|
+ {v} was the first to climb {s}.;{s} was first climbed by {v}.
? Who was the first to climb {s}?;By whom was {s} first climbed?
prize|person|prize|
+ {s} was awarded the {v}.;The {v} went to {s}.
? Which prize was {s} awarded?;What award did {s} receive?
capital|province|place|
+ The capital of the {s} is {v}.;{v} serves as the capital of the {s}.
? What is the capital of the {s}?;Which town is the capital of the {s}?
engine|ship|code|
+ The {s} is driven by an engine of type {v}.;An engine of type {v} drives the {s}.
? What type of engine drives the {s}?;By which engine is the {s} driven?
translator|book|person|
+ {s} was translated by {v}.;{v} translated {s} from the original.
? Who translated {s}?;By whom was {s} translated?
battery|device|span|
+ The battery of the {s} lasts {v}.;One charge keeps the {s} running for {v}.
? How long does the battery of the {s} last?;For how long does one charge keep the {s} running?
repository|project|word|
+ The repository of {s} is named {v}.;The source of {s} is kept in the repository {v}.
? What is the repository of {s} named?;In which repository is the source of {s} kept?
"""

# subject|value|who has many: statements and questions as above; the answer names all
_LISTS = """
lecture|person|place
+ {s} gave a lecture in {v}.;In {v}, {s} gave a lecture to a full hall.;A lecture by {s} was heard in {v}.
? In which towns did {s} give a lecture?;Where did {s} give lectures?;List the towns where {s} gave a lecture.
tongues|person|language
+ {s} speaks {v}.;{s} learned {v} as a child.;Letters in {v} were written by {s}.
? Which languages does {s} speak?;List the languages that {s} speaks.;What languages did {s} learn?
branches|house|place
+ The {s} has a branch in {v}.;A branch of the {s} was opened in {v}.;In {v} there is a branch of the {s}.
? In which towns does the {s} have a branch?;List the branches of the {s}.;Where are the branches of the {s}?
members|project|person
+ {v} is a member of the team of {s}.;{v} joined {s}.;{v} works on {s}.
? Who works on {s}?;List the members of {s}.;Who are the members of the team of {s}?
suppliers|house|house
+ The {v} supplies the {s}.;The {s} buys from the {v}.;The {s} has a contract with the {v} as its supplier.
? Which suppliers does the {s} have?;From whom does the {s} buy?;List the suppliers of the {s}.
stops|ship|place
+ The {s} called at {v}.;The {s} anchored in {v} for two days.;In {v} the {s} took on water.
? At which places did the {s} call?;Where did the {s} anchor?;List the places where the {s} stopped.
colours|device|colour
+ The {s} is available in {v}.;You can order the {s} in {v}.;The {s} is also sold in {v}.
? In which colours is the {s} available?;List the colours of the {s}.;In what colours can you order the {s}?
books|person|book
+ {s} wrote {v}.;{v} is a book by {s}.;{s} is the author of {v}.
? Which books did {s} write?;List the books by {s}.;Of what books is {s} the author?
"""

_LISTS_HELD = """
gardens|person|plant
+ {s} planted a {v}.;A {v} was planted by {s}.
? What did {s} plant?;List the plants that {s} planted.
guests|place|person
+ {v} once stayed in {s}.;{s} had {v} as a guest.
? Who stayed in {s}?;List the guests of {s}.
"""

# name|value|better query
_HABITS = """
cat|place|cat named adopted
+ I just adopted a cat and named her {v}.;My cat {v} knocked over a vase again.;My cat is called {v}.
? What is the name of my cat?;What is my cat called?;How did I name my cat?
work|house|new job work
+ I started a new job at the {v} this week.;Work at the {v} keeps me busy.;From today I work for the {v}.
? Where do I work?;What is my workplace?;For whom do I work?
live|place|moved living town
+ We moved to {v} last weekend.;I have been living in {v} for a while.;I live in {v} these days.
? Which town do I live in?;Where do I live?;In what town is my home?
sister|person|sister
+ My sister {v} is visiting us.;I called my sister {v} yesterday.;{v}, my sister, sent me a card.
? What is the name of my sister?;What is my sister called?;Who is my sister?
allergy|allergen|allergic
+ The doctor says I am allergic to {v}.;Remember that I am allergic to {v}.;It turned out that I am allergic to {v}.
? What am I allergic to?;Which allergy do I have?;To what am I allergic?
trip|place|booked holiday trip
+ I booked a trip to {v} for the holidays.;Our holiday trip will take us to {v}.;We are planning a trip to {v}.
? Where will my holiday trip take me?;Where does my trip go?;To which place am I planning a trip?
car|colour|car bought
+ I bought a car, a {v} one.;My car is {v}.;I had my car painted {v}.
? What colour is my car?;Which colour does my car have?;In what colour is my car painted?
dentist|date|dentist appointment
+ My dentist appointment is on {v}.;The dentist wants to see me on {v}.;I see the dentist on {v}.
? When is my dentist appointment?;When does the dentist want to see me?;On what day do I see the dentist?
drink|drink|favourite drink
+ My favourite drink is {v}.;These days I drink {v} every morning.;I could not live without {v}, my favourite drink.
? What is my favourite drink?;What do I drink every morning?;Which drink do I like most?
hobby|hobby|hobby started
+ My new hobby is {v}.;I spend my weekends on {v}, a hobby of mine.;I took up {v} as a hobby.
? What is my hobby?;Which hobby do I have?;What did I take up as a hobby?
password|code|password
+ I changed the garage code to {v}.;The code of the garage is {v}.;Please remember the garage code {v}.
? What is the code of the garage?;Which code does the garage have?;What is my garage code?
boss|person|boss
+ My boss is called {v}.;{v} is my boss.;My boss {v} praised the report.
? Who is my boss?;What is my boss called?;What is the name of my boss?
"""

_HABITS_HELD = """
doctor|person|doctor
+ My doctor is {v}.;I saw my doctor {v} again.
? Who is my doctor?;What is the name of my doctor?
instrument|instrument|learning play
+ I am learning to play the {v}.;My lessons on the {v} go well.
? Which instrument am I learning?;What instrument do I play?
"""
# fmt: on


def _rows(table: str) -> Iterator[tuple[list[str], tuple[str, ...], tuple[str, ...]]]:
    lines = table.strip().split("\n")
    for head, told, asked in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        yield head.split("|"), tuple(told[2:].split(";")), tuple(asked[2:].split(";"))


def relations_of(table: str, held_out: bool = False) -> list[Relation]:
    """The rows of a table."""
    return [
        Relation(head[0], head[1], head[2], told, asked, head[3] if len(head) > 3 else "", held_out)
        for head, told, asked in _rows(table)
    ]


def habits_of(table: str, held_out: bool = False) -> list[Habit]:
    """The rows of a table."""
    return [Habit(head[0], head[1], told, asked, head[2], held_out) for head, told, asked in _rows(table)]


RELATIONS: tuple[Relation, ...] = (*relations_of(_TABLE, False), *relations_of(_HELD, True))
LISTS: tuple[Relation, ...] = (*relations_of(_LISTS, False), *relations_of(_LISTS_HELD, True))
HABITS: tuple[Habit, ...] = (*habits_of(_HABITS, False), *habits_of(_HABITS_HELD, True))


def hops(split: str) -> list[tuple[Relation, Relation]]:
    """Pairs of trained relations of which the second tells of the first's value; every fourth is evaluation's alone."""
    trained = [r for r in RELATIONS if not r.held_out]
    pairs = [
        (one, two)
        for one in trained
        if one.noun
        for two in trained
        if two.subject == one.value and two is not one
    ]
    return [pair for place, pair in enumerate(pairs) if (place % 4 == 3) == (split == "test")]
