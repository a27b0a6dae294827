"""More ways of stating and asking what `relations` tells of, more relations and lists, and the way back through each:
for training alone. The evaluation draws none of it, so that its phrasings, relations and pairs stay what they were.

A policy that saw two phrasings of a relation learns these two; with five it learns that words may differ. None of these
has the words of the phrasing that is kept for evaluation.
"""

from __future__ import annotations

from pensieve_mcp.statelm.training.relations import (
    HABITS,
    LISTS,
    RELATIONS,
    Habit,
    Relation,
    habits_of,
    relations_of,
)

# name
#   + statements, ; between them
#   ? questions
# fmt: off
# ruff: noqa: E501  # a table reads best in lines
_MORE = """
founder
+ In the beginning of the {s} there was one person, {v}.;{v} started the {s} with borrowed money.;The {s} goes back to {v}.;Without {v}, who set it up, the {s} would not exist.
? Who started the {s}?;Who set up the {s}?;To whom does the {s} owe its beginning?;Whose creation is the {s}?
opened
+ The first guests entered the {s} in {v}.;Since {v} people come to the {s}.;The ribbon at the door of the {s} was cut in {v}.
? When did the first guests enter the {s}?;How long has the {s} existed?;In which year could people first visit the {s}?
city
+ {v} is home to the {s}.;The address of the {s} is in {v}.;The {s} moved into a building in {v}.;In {v} everyone can show you the way to the {s}.
? Which place is home to the {s}?;Where would one travel to see the {s}?;What is the address of the {s}?;Where is the {s}?
director
+ {v} heads the {s}.;The {s} has {v} at its head.;{v} runs the {s}.;Decisions at the {s} are taken by {v}, its head.
? Who heads the {s}?;Who runs the {s}?;Who is at the head of the {s}?;Who manages the {s}?
architect
+ The drawings for the {s} came from {v}.;{v} was hired to plan the building of the {s}.;The {s} is a work of the builder {v}.
? Who planned the {s}?;From whom came the drawings for the {s}?;Whose plans were used for the {s}?
material
+ The walls of the main hall of the {s} consist of {v}.;{v} was chosen for the main hall of the {s}.
? What do the walls of the main hall of the {s} consist of?;Which material was chosen for the main hall of the {s}?
staff
+ {v} workers earn their bread at the {s}.;The payroll of the {s} lists {v} names.;The {s} gives work to {v} men and women.
? How many workers does the {s} have?;To how many does the {s} give work?;How many names are on the payroll of the {s}?
owner
+ {v} bought the {s}.;The {s} is the property of {v}.;The deeds of the {s} are in the name of {v}.;The {s} is in the hands of {v}.
? Who bought the {s}?;Whose property is the {s}?;In whose hands is the {s}?
sponsor
+ The {v} gives money to the {s}.;The {s} is supported by the {v}.;Every year the {v} pays a large sum to the {s}.;The {s} thanks the {v} for its gifts.
? Who gives money to the {s}?;Who supports the {s}?;Where does the money of the {s} come from?
visitors
+ {v} people walked through the {s} last year.;The {s} sold entry to {v} people last year.
? How many people walked through the {s} last year?;How busy was the {s} last year?
keeper
+ {v} looks after the {s}.;At night {v} locks the doors of the {s}.;The {s} has a caretaker, {v}.;{v} sweeps the halls of the {s}.
? Who looks after the {s}?;Who keeps the keys of the {s}?;Who locks the {s} at night?
tree
+ Before the gate of the {s} one sees a {v}.;The {s} has a {v} at its entrance.
? What is planted before the gate of the {s}?;Which tree is at the entrance of the {s}?
fee
+ Entry to the {s} is {v}.;To get into the {s} you pay {v}.;The ticket price of the {s} is {v}.
? What do you pay to get into the {s}?;How much is a ticket for the {s}?;What is the ticket price of the {s}?;How expensive is entry to the {s}?
born
+ {s} came into the world in {v}.;{v} is where {s} was born.;The parents of {s} lived in {v} when the child was born.;{s} first saw the light in {v}.
? From where does {s} come?;Where did {s} come into the world?;Which place saw the birth of {s}?;In what place was {s} born?
job
+ {s} was employed as a {v}.;People went to {s} when they needed a {v}.;The profession of {s} was that of a {v}.;{s} learned to be a {v} and stayed one.;{s}, a {v}, was never without work.;They say {s} was the finest {v} of the district.
? What was the profession of {s}?;What did {s} do for money?;As what was {s} employed?;Which trade did {s} follow?;What kind of work did {s} do?
married
+ {s} and {v} are married.;{s} shared a house and a life with {v}, to whom vows were made.;{v} is the name on the wedding ring of {s}.;{s} took {v} in marriage.
? With whom is {s} married?;Whom did {s} take in marriage?;Who is the husband or wife of {s}?
food
+ {s} would eat {v} every day.;On birthdays {s} asks for {v}.;{s} loves {v}.;If you cook for {s}, make {v}.
? What does {s} love to eat?;What should one cook for {s}?;Which dish does {s} prefer?;What would {s} eat every day?
died
+ The last year of {s} was {v}.;{s} was buried in {v}.;The life of {s} ended in {v}.
? When did the life of {s} end?;When was {s} buried?;Until when did {s} live?
mother
+ {s} is a child of {v}, a strict mother.;{v} gave birth to {s}.;{s} had {v} as mother.
? Who gave birth to {s}?;Whose child is {s}?;What was the mother of {s} called?
instrument
+ {s} performs on the {v}.;One hears {s} practise the {v}.;{s} owns a {v} and plays it well.;{s} is known as a master of the {v}.
? On what does {s} perform?;What does {s} practise?;Of which instrument is {s} a master?;What can {s} play?
school
+ {s} was educated at the {v}.;The {v} taught {s} to read and write.;{s} sat in the classrooms of the {v}.
? Where was {s} educated?;Who taught {s} to read and write?;In whose classrooms did {s} sit?
rival
+ {s} and {v} could not stand each other.;{s} always tried to beat {v}.;The strongest opponent of {s} was {v}.
? Whom did {s} try to beat?;Who was the strongest opponent of {s}?;Against whom did {s} compete?
pet
+ {s} feeds a tame {v} at home.;{s} is never seen without a {v}, an old companion.;A {v} sleeps beside the bed of {s}.
? Which animal does {s} feed at home?;What animal is the companion of {s}?;Which animal sleeps beside the bed of {s}?
lives
+ {s} has a flat in {v}.;You can visit {s} in {v}.;{s} rents rooms in {v}.;The letters for {s} go to {v}.
? Where can you visit {s}?;Where does {s} have a flat?;To which town do letters for {s} go?;What is the place of residence of {s}?
employer
+ The {v} pays the wages of {s}.;{s} has a post at the {v}.;{s} is on the staff of the {v}.;{s} earns a salary at the {v}.
? Who pays the wages of {s}?;Who employs {s}?;On whose staff is {s}?;At which house does {s} have a post?
passcode
+ Access to {s} needs the code {v}.;{v} is the code that lets you into {s}.;Those who join {s} get the access code {v}.
? What lets you into {s}?;With which access code does one get into {s}?;What must be typed to get into {s}?
lead
+ At the head of {s} stands {v}.;{v} runs {s}.;{s} has {v} as its head.;All in {s} report to {v}.
? Who runs {s}?;Who heads {s}?;To whom do all in {s} report?;Who manages {s}?
budget
+ {v} were granted to {s}.;{s} costs {v} in all.;The treasurer set aside {v} for {s}.
? What sum was granted to {s}?;How much was set aside for {s}?;What does {s} cost in all?
client
+ {s} is done for the {v}.;The {v} asked for {s}.;The customer behind {s} is the {v}.
? For whom is {s} done?;Who asked for {s}?;Which customer is behind {s}?
server
+ {v} is the server of {s}.;{s} is hosted on {v}.;The data of {s} were moved to server {v}.
? Where is {s} hosted?;Which machine hosts {s}?;What is the name of the server of {s}?
started
+ {s} got going on {v}.;The first day of {s} was {v}.;{v} saw the beginning of {s}.
? When did {s} get going?;What was the first day of {s}?;When did {s} begin?
language
+ The source of {s} is pure {v}.;{s} was programmed in {v}.;Who wants to work on {s} must know {v}.
? In what was {s} programmed?;What must one know to work on {s}?;Which programming language does {s} use?
tester
+ {v} checks {s} for faults.;Faults in {s} are found by {v}.;{s} passes through the hands of {v} for testing.
? Who checks {s} for faults?;Who finds the faults in {s}?;Through whose hands does {s} pass for testing?
mayor
+ {v} governs {s} as mayor.;{v} won the election for mayor in {s}.;The town hall of {s} is ruled by {v}.;{s} is governed by {v}.
? Who governs {s}?;Who won the election in {s}?;Who rules the town hall of {s}?
river
+ {s} was built on the banks of the {v}.;Boats on the {v} stop at {s}.;The water of the {v} reaches {s}.;{s} stands by the {v}.
? By which river does {s} stand?;On the banks of which river was {s} built?;Which river reaches {s}?
people
+ {v} souls live in {s}.;{s} counts {v} citizens.;At the last census {s} had {v} people.
? How many citizens does {s} count?;How big is {s}?;How many souls live in {s}?
export
+ {s} sells {v} to its neighbours.;Carts full of {v} leave {s} every week.;{s} lives on the trade in {v}.;The workshops of {s} produce {v}.
? What does {s} sell to its neighbours?;On which trade does {s} live?;What do the workshops of {s} produce?;Which goods come from {s}?
patron
+ {s} prays to {v}.;{v} protects {s}, they say.;The feast of {v}, the patron, is kept in {s}.
? To whom does {s} pray?;Who protects {s}?;Whose feast is kept in {s}?
twin
+ {s} signed a twinning with {v}.;{v} is paired with {s}.;Schools of {s} visit the twin town {v}.
? With which town is {s} paired?;With whom did {s} sign a twinning?;Which town do schools of {s} visit as their twin?
captain
+ {v} is master of the {s}.;On the bridge of the {s} stands {v}.;The crew of the {s} obeys {v}.;The {s} has {v} as its captain.
? Who is master of the {s}?;Whom does the crew of the {s} obey?;Who stands on the bridge of the {s}?;Who steers the {s}?
harbour
+ The {s} is registered in {v}.;{v} is the port to which the {s} returns.;The {s} winters in {v}.
? Where is the {s} registered?;To which port does the {s} return?;Where does the {s} winter?
cargo
+ The hold of the {s} is full of {v}.;The {s} ships {v}.;Customs found {v} on board the {s}.
? What is in the hold of the {s}?;What does the {s} ship?;What was found on board the {s}?
length
+ The {s} reaches {v} from end to end.;Measured on the deck the {s} has {v}.
? How far does the {s} reach from end to end?;How many metres has the {s}?
builder
+ The {s} left the yard of the {v}.;The plates of the {s} were joined at the {v}.;The {v} delivered the {s}.
? From whose yard did the {s} come?;Who delivered the {s}?;Where was the {s} put together?
author
+ {s} came from the pen of {v}.;The title page of {s} names {v}.;{v} worked for years on the text of {s}.
? From whose pen came {s}?;Who is named on the title page of {s}?;Whose work is {s}?;Which writer made {s}?
printed
+ {s} was on sale from {v}.;The printers finished {s} in {v}.;Readers have had {s} since {v}.
? Since when have readers had {s}?;When did the printers finish {s}?;What is the year of the first edition of {s}?
publisher
+ The {v} brought {s} to the shops.;The rights to {s} are with the {v}.;{s} appeared with the {v}.
? Who brought {s} to the shops?;With whom did {s} appear?;Who has the rights to {s}?
pages
+ One turns {v} pages to finish {s}.;{s} fills {v} pages.;The book {s} runs to {v} pages.
? How many pages does {s} fill?;To how many pages does {s} run?;How thick is {s}?
hero
+ {v} is at the centre of {s}.;{s} is about {v}.;The adventures of {v} fill {s}.
? Who is at the centre of {s}?;About whom is {s}?;Whose adventures fill {s}?
colour
+ The {s} has a {v} case.;They painted the case of the {s} {v}.;A {v} case protects the {s}.
? How is the case of the {s} painted?;Which colour has the case of the {s}?;What is the colour of the {s}?
weight
+ It takes {v} on the other side to balance the {s}.;The {s} brings {v} to the scale.
? What does the {s} bring to the scale?;What does the {s} weigh?
maker
+ The {v} produces the {s}.;The {s} comes from the workshops of the {v}.;The {s} is a product of the {v}.;The {s} is manufactured by the {v}.
? Who produces the {s}?;Whose product is the {s}?;Who manufactures the {s}?;From whose workshops comes the {s}?
price
+ For the {s} the shop asks {v}.;The {s} sells at {v}.;Buyers pay {v} for the {s}.
? What does the shop ask for the {s}?;How much do buyers pay for the {s}?;At what price does the {s} sell?
inventor
+ The idea for the {s} came from {v}.;{v} thought up the {s}.;The patent for the {s} is held by {v}.;{v} built the first {s}.
? Who thought up the {s}?;Who holds the patent for the {s}?;Whose idea was the {s}?;Who built the first {s}?
warranty
+ Within {v} the {s} is repaired free of charge.;The {s} comes with {v} of warranty.
? Within what time is the {s} repaired free of charge?;How much warranty comes with the {s}?
setting
+ The {s} stops trying when {v} seconds have gone by.;The timeout of the {s} is set to {v} seconds.
? To how many seconds is the timeout of the {s} set?;When does the {s} stop trying?
port
+ {s} answers on port {v}.;Port {v} belongs to {s}.
? On which port does {s} answer?;Which port belongs to {s}?
room
+ Behind the door of room {v} works {s}.;The desk of {s} is in room {v}.;Room {v} belongs to {s}.
? Where is the desk of {s}?;Which room belongs to {s}?;Where is the office of {s}?
phone
+ Dial {v} to speak to {s}.;The telephone of {s} has the number {v}.
? What must I dial to speak to {s}?;Which telephone number does {s} have?
habitat
+ The {s} is at home in {v}.;One meets the {s} in {v}.;The {s} nests in {v}.
? Where is the {s} at home?;Where does one meet the {s}?;In what surroundings does the {s} nest?
diet
+ The {s} lives on {v}.;The stomach of the {s} was full of {v}.
? What does the {s} live on?;What was in the stomach of the {s}?
described
+ Science owes the {s} to {v}.;{v} discovered the {s}.;The {s} was named in a paper by {v}.
? To whom does science owe the {s}?;Who discovered the {s}?;Who named the {s}?
"""

# relations and lists as in `relations`; none is kept from training
_RELATIONS = """
cook|house|person|the cook of the {s}
+ {v} cooks for the {s}.;The meals at the {s} are made by {v}.;The kitchen of the {s} belongs to {v}, its cook.
? Who cooks for the {s}?;Who makes the meals at the {s}?;Who is the cook of the {s}?
painter|house|person|the painter who decorated the {s}
+ The ceiling of the {s} was painted by {v}.;{v} decorated the walls of the {s}.;The pictures in the {s} are by {v}.
? Who decorated the {s}?;Who painted the ceiling of the {s}?;By whom are the pictures in the {s}?
beside|house|house|the neighbour of the {s}
+ Next to the {s} is the {v}.;The {s} shares a wall with the {v}.;The neighbour of the {s} is the {v}.
? What is next to the {s}?;With whom does the {s} share a wall?;Which house is the neighbour of the {s}?
motto|house|word|
+ The motto of the {s} is {v}.;Over the door of the {s} is written {v}.;{v} is the word that the {s} chose as its motto.
? What is the motto of the {s}?;What is written over the door of the {s}?;Which word did the {s} choose as its motto?
friend|person|person|the best friend of {s}
+ The best friend of {s} is {v}.;{s} tells everything to {v}.;{s} and {v} have been friends since childhood.
? Who is the best friend of {s}?;To whom does {s} tell everything?;Who has been a friend of {s} since childhood?
heir|person|person|the heir of {s}
+ {s} left everything to {v}.;The heir of {s} is {v}.;{v} will inherit the house of {s}.
? Who is the heir of {s}?;To whom did {s} leave everything?;Who will inherit the house of {s}?
physician|person|person|the physician of {s}
+ {v} treats {s} when ill.;The physician of {s} is {v}.;{s} trusts the physician {v}.
? Who is the physician of {s}?;Who treats {s} when ill?;Which physician does {s} trust?
speech|person|language|
+ At home {s} speaks {v}.;The first language of {s} is {v}.;{s} grew up with {v}.
? What is the first language of {s}?;What does {s} speak at home?;With which language did {s} grow up?
market|place|date|
+ The market of {s} is held on {v}.;On {v} there is a market in {s}.;Farmers meet at the market of {s} on {v}.
? When is the market of {s} held?;On what day is there a market in {s}?;When do farmers meet at the market of {s}?
castle|place|person|the lord of {s}
+ The castle above {s} belongs to {v}.;The lord of {s} is {v}.;{v} lives in the castle above {s}.
? Who is the lord of {s}?;Who lives in the castle above {s}?;To whom belongs the castle above {s}?
dish|place|food|
+ In {s} people eat {v} on Sundays.;The dish of {s} is {v}.;Travellers come to {s} for its {v}.
? What do people eat in {s} on Sundays?;What is the dish of {s}?;For which food do travellers come to {s}?
station|place|house|the newspaper of {s}
+ The newspaper of {s} is the {v}.;People in {s} read the {v}.;The {v} brings the news to {s}.
? What is the newspaper of {s}?;What do people in {s} read?;Who brings the news to {s}?
engineer|ship|person|the engineer of the {s}
+ {v} keeps the machine of the {s} running.;The engineer of the {s} is {v}.;Below deck of the {s} rules {v}, the engineer.
? Who is the engineer of the {s}?;Who keeps the machine of the {s} running?;Who rules below deck of the {s}?
destination|ship|place|the destination of the {s}
+ The {s} is bound for {v}.;The next stop of the {s} will be {v}.;The destination of the {s} is {v}.
? For where is the {s} bound?;What is the destination of the {s}?;What will be the next stop of the {s}?
illustrator|book|person|the illustrator of {s}
+ The drawings in {s} are by {v}.;{v} illustrated {s}.;The illustrator of {s} is {v}.
? Who illustrated {s}?;By whom are the drawings in {s}?;Who is the illustrator of {s}?
scene|book|place|the town in which {s} is set
+ {s} is set in {v}.;The story of {s} takes place in {v}.;{v} is the scene of {s}.
? Where is {s} set?;Where does the story of {s} take place?;Which town is the scene of {s}?
seller|device|house|the seller of the {s}
+ The {s} can be bought at the {v}.;The {v} sells the {s}.;The {v} has the {s} in stock.
? Where can the {s} be bought?;Who sells the {s}?;Who has the {s} in stock?
auditor|project|person|the auditor of {s}
+ The books of {s} are checked by {v}.;{v} is the auditor of {s}.;{s} is audited by {v}.
? Who is the auditor of {s}?;Who checks the books of {s}?;By whom is {s} audited?
"""

_LISTS = """
daughters|person|person
+ {v} is a daughter of {s}.;{s} has a daughter called {v}.;{s} is the father of {v}.
? What are the daughters of {s} called?;Who are the daughters of {s}?;List the daughters of {s}.
pupils|person|person
+ {s} gave lessons to {v}.;{v} took lessons from {s}.;{v} was a pupil of {s}.
? To whom did {s} give lessons?;Who took lessons from {s}?;List the pupils of {s}.
gates|place|house
+ In {s} you can visit the {v}.;The {v} is worth a visit when you are in {s}.;Tourists in {s} see the {v}.
? What can you visit in {s}?;What do tourists see in {s}?;List the sights of {s}.
inns|place|person
+ {v} keeps an inn in {s}.;An inn in {s} is run by {v}.;In {s} one can sleep at the inn of {v}.
? Who keeps an inn in {s}?;Whose inns are there in {s}?;List the innkeepers of {s}.
crops|house|plant
+ The {s} grows the {v}.;A {v} was bought for the park of the {s}.;In the park of the {s} there is a {v}.
? What does the {s} grow?;Which plants are in the park of the {s}?;List the plants in the park of the {s}.
crew|ship|person
+ {v} serves on the {s}.;{v} signed on with the {s}.;Among the crew of the {s} is {v}.
? Who serves on the {s}?;Who belongs to the crew of the {s}?;List the crew of the {s}.
parts|device|material
+ The {s} has parts of {v}.;{v} was used in the {s}.;In the {s} one finds {v}.
? Of what are the parts of the {s}?;What was used in the {s}?;List the materials in the {s}.
animals|place|animal
+ A {v} was seen near {s}.;Hunters from {s} met a {v}.;Near {s} there lives a {v}.
? Which animals were seen near {s}?;Which animals live near {s}?;List the animals near {s}.
needs|project|good
+ {s} needs {v}.;{v} was ordered for {s}.;{s} used up all its {v}.
? What does {s} need?;What was ordered for {s}?;List the goods that {s} needs.
"""

_HABITS_MORE = """
cat
+ {v} is the cat that moved in with me.;I feed my cat {v} twice a day.;The vet looked at my cat {v}.
? Which name did I give the cat that moved in?;Which cat did I adopt?
work
+ I was hired by the {v}.;My new employer is the {v}.;I left my desk at the {v} late today, the new job is hard.
? Who employs me?;Who hired me?;At which house do I have a job?
live
+ My new flat is in {v}.;I rent a room in {v}.;My new address is in {v}.;I feel at home in {v}.
? To which town did we move?;Where is my flat?;What is my address?;Which town did I settle in?
sister
+ I have a sister, {v}.;My sister's name is {v}.;I met {v}, the sister I told you of.
? Which sister did I call?;How is my sister named?
allergy
+ I must not eat or touch {v}, an allergy.;My allergy to {v} is back.
? What must I avoid because of my allergy?;What does the doctor say I am allergic to?
trip
+ The tickets for the trip to {v} have come.;My holiday trip goes to {v}.;I packed for the trip to {v}.
? Where am I going on holiday?;For where do I have tickets?;Which place did I book a trip to?
car
+ I drive a {v} car.;The car I drive is painted {v}.;I chose a {v} car.
? In which colour did I choose my car?;What is the colour of the car I drive?
dentist
+ The dentist gave me {v}.;I have to be at the dentist on {v}.;My tooth will be looked at on {v} by the dentist.
? Which day did the dentist give me?;When do I have to be at the dentist?
drink
+ I order {v} wherever I go, my favourite.;{v} is what I drink most.;Make me a {v}, my favourite drink.
? What do I order wherever I go?;What should you make me to drink?
hobby
+ I fell in love with {v}, my hobby now.;All my free time goes into {v}, my hobby.
? What do I do in my free time?;Into which hobby goes my free time?
password
+ To open the garage I type {v}.;They gave me {v} as code for the garage.
? What do I type to open the garage?;Which numbers open the garage?
boss
+ I report to {v}, my boss.;The company made {v} my boss.;{v} became my boss.
? To whom do I report?;Who became my boss?
"""

_HABITS_OWN = """
neighbour|person|neighbour
+ My neighbour {v} waters the plants.;{v} moved in next door, a good neighbour.;My neighbour is called {v}.
? Who is my neighbour?;Who lives next door?;What is my neighbour called?
course|language|course learning language
+ I take a course in {v}.;I am learning {v} in the evenings.;My course in {v} began.
? Which language am I learning?;What course do I take?;In which language do I take lessons?
meeting|date|meeting team
+ The team meeting is on {v}.;They moved the team meeting to {v}.;I go to the team meeting on {v}.
? When is the team meeting?;To which day was the team meeting moved?;On what day do I meet the team?
dog|place|dog
+ My dog {v} barked all night.;I walk my dog {v} at six.;We named the dog {v}.
? What is my dog called?;How did we name the dog?;Which name does my dog have?
lunch|food|lunch
+ I had {v} for lunch.;For lunch I bring {v}.;My lunch is {v} these days.
? What do I have for lunch?;What do I bring for lunch?;What is my lunch?
wifi|code|wireless network password
+ The password of the wireless network is {v}.;I set the network password to {v}.;Guests use {v} for the wireless network.
? What is the password of the wireless network?;What did I set the network password to?;What do guests use for the wireless network?
"""

# the way from the value back to the subject: name | noun phrases, ; between them | questions
_BACK = """
founder|the house founded by {v};the house that {v} started|Which house did {v} found?;What did {v} set up?;Which house goes back to {v}?
city|the house located in {v};the house that stands in {v}|Which house is located in {v}?;Which house can be visited in {v}?
director|the house directed by {v};the house that {v} runs|Which house does {v} direct?;Which house has {v} as its head?
architect|the house designed by {v};the house that {v} planned|Which house did {v} design?;Which house was planned by {v}?
owner|the house owned by {v};the house that belongs to {v}|What does {v} own?;Which house belongs to {v}?
sponsor|the house sponsored by {v};the house that gets money from {v}|Whom does {v} sponsor?;Which house gets its money from {v}?
keeper|the house looked after by {v};the house whose caretaker is {v}|Which house does {v} look after?;Of which house is {v} the caretaker?
born|the person born in {v};the person who comes from {v}|Who was born in {v}?;Which person comes from {v}?
married|the person married to {v}|Who is married to {v}?
mother|the child of {v};the person whose mother is {v}|Who is the child of {v}?;Whose mother is {v}?
school|the pupil of {v};the person who went to {v} as a pupil|Who was a pupil of {v}?;Who was educated at {v}?
rival|the person who had {v} as a rival|Who had {v} as a rival?
lives|the person who lives in {v};the person whose home is in {v}|Who lives in {v}?;Whose home is in {v}?
employer|the person who works for {v};the person employed by {v}|Who works for {v}?;Whom does {v} employ?
lead|the project led by {v};the project that {v} heads|Which project does {v} lead?;What is the project of which {v} is the head?
client|the project ordered by {v};the project that {v} pays for|Which project was ordered by {v}?;For which project does {v} pay?
tester|the project tested by {v};the project that {v} checks|Which project is tested by {v}?;What does {v} test?
mayor|the town governed by {v};the town whose mayor is {v}|Which town has {v} as its mayor?;Where is {v} mayor?
river|the town on {v};the town by {v};the town through which {v} flows|Which town lies on {v}?;Which town stands by {v}?
patron|the town that honours {v};the town whose patron is {v}|Which town has {v} as its patron?;Where is {v} honoured?
twin|the town paired with {v}|Which town is paired with {v}?
captain|the ship commanded by {v};the ship whose captain is {v}|Which ship does {v} command?;Of which ship is {v} the captain?
harbour|the ship at home in {v};the ship whose home harbour is {v}|Which ship has {v} as its home harbour?;Which ship is registered in {v}?
builder|the ship built by {v}|Which ship was built by {v}?;Which ship did {v} deliver?
author|the book written by {v};the book that {v} wrote|Which book did {v} write?;What was written by {v}?
publisher|the book published by {v}|Which book was published by {v}?;What did {v} publish?
hero|the book about {v};the book whose hero is {v}|Which book is about {v}?;In which book is {v} the hero?
maker|the device made by {v};the device that {v} produces|Which device is made by {v}?;What does {v} produce?
inventor|the device invented by {v};the device that {v} thought up|Which device did {v} invent?;What was invented by {v}?
described|the species first described by {v};the species that {v} discovered|Which species did {v} describe first?;What did {v} discover?
cook|the house where {v} cooks|For which house does {v} cook?
heir|the person who left everything to {v}|Who left everything to {v}?
castle|the town whose lord is {v}|Which town has {v} as its lord?
scene|the book set in {v}|Which book is set in {v}?
seller|the device sold by {v}|What does {v} sell?
destination|the ship bound for {v}|Which ship is bound for {v}?
"""
# fmt: on


def _more(table: str) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    lines = table.strip().split("\n")
    return {
        name: (tuple(told[2:].split(";")), tuple(asked[2:].split(";")))
        for name, told, asked in zip(lines[::3], lines[1::3], lines[2::3], strict=True)
    }


MORE, HABITS_MORE = _more(_MORE), _more(_HABITS_MORE)
"""Statements and questions beside those of the tables, by name."""
_OWN_RELATIONS, _OWN_LISTS = relations_of(_RELATIONS), relations_of(_LISTS)
_OWN_HABITS = habits_of(_HABITS_OWN)
OWN = frozenset((*(one.name for one in (*_OWN_RELATIONS, *_OWN_LISTS)), *(one.name for one in _OWN_HABITS)))
"""What only training knows: all of its phrasings are training's."""
RELATIONS_TRAINED = (*(one for one in RELATIONS if not one.held_out), *_OWN_RELATIONS)
LISTS_TRAINED = (*(one for one in LISTS if not one.held_out), *_OWN_LISTS)
HABITS_TRAINED = (*(one for one in HABITS if not one.held_out), *_OWN_HABITS)
BACK: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    name: (tuple(nouns.split(";")), tuple(asked.split(";")))
    for name, nouns, asked in (line.split("|") for line in _BACK.strip().split("\n"))
}
"""Noun phrases for the subject of a relation by its value, and questions for it: {v} with its article."""


def more(of: Relation | Habit) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Statements and questions beside those of the tables."""
    return (HABITS_MORE if isinstance(of, Habit) else MORE).get(of.name, ((), ()))


def statements(of: Relation | Habit, split: str) -> tuple[str, ...]:
    """Templates with {v}, of relations with {s}."""
    if split != "train":
        return of.statements(split)
    return (*(of.told if of.name in OWN else of.statements(split)), *more(of)[0])


def questions(of: Relation | Habit, split: str) -> tuple[str, ...]:
    """Templates, of relations with {s}."""
    if split != "train":
        return of.questions(split)
    return (*(of.asked if of.name in OWN else of.questions(split)), *more(of)[1])
