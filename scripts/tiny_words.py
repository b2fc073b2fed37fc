# ruff: noqa: E501, SIM905 -- lists of words read better as prose
"""Word lists and small facts for the corpus of the built-in model `tiny`.

Written by hand for this project; knows nothing about tokens, chats or models.
"""

from __future__ import annotations


def _pairs(text: str) -> list[tuple[str, str]]:
    """Split ``a:b, c:d`` into pairs."""
    items = (item.split(":") for item in text.replace("\n", " ").split(","))
    return [(left.strip(), right.strip()) for left, right in items]


def _items(text: str) -> list[str]:
    """Split at commas."""
    return [item.strip() for item in text.replace("\n", " ").split(",")]


NAMES = (
    "Anna Ben Clara David Emma Felix Grace Hugo Ida James Kate Leo Maria Noah Olga Paul Rosa Sam "
    "Tom Vera Will Zoe Alice Bob Carol Dan Eva Frank Helen Ivan Julia Karl Lucy Max Nina Oscar "
    "Peter Ruth Sara Tim Ali Chen Priya Omar Yuki Amara Diego Lena Mia Ravi"
).split()

ANIMALS = (
    "cat dog horse cow sheep goat pig hen duck goose mouse rabbit fox wolf bear lion tiger "
    "elephant giraffe zebra monkey whale dolphin shark salmon frog snake turtle eagle owl bee ant "
    "spider butterfly penguin kangaroo camel deer squirrel parrot"
).split()

FOODS = (
    "apple pear banana orange lemon cherry grape bread butter cheese rice pasta soup salad cake "
    "honey milk tea coffee water juice egg fish chicken potato tomato onion carrot bean corn "
    "pepper salt sugar chocolate yogurt mushroom garlic noodle pizza sandwich"
).split()

THINGS = (
    "book pen table chair lamp door window house car bus train bicycle boat plane phone computer "
    "clock key bag box cup plate spoon knife shirt shoe hat coat letter map picture camera radio "
    "guitar piano ball stone tree flower leaf river mountain garden road bridge ticket mirror "
    "blanket pillow bottle basket ladder hammer engine machine screen paper card coin"
).split()

PLACES = (
    "school park library market museum kitchen garden forest beach city village farm station "
    "office hospital hotel restaurant theater island valley castle harbor lake field street"
).split()

JOBS = (
    "teacher doctor nurse farmer baker driver pilot writer painter singer engineer scientist "
    "lawyer cook student judge carpenter gardener librarian programmer"
).split()

COMMON = (
    "able about above accept account across act action active actually add address admit adult "
    "advantage affect after again against age agency ago agree ahead aim air allow almost alone "
    "along already also although always among amount analysis ancient angle announce another answer "
    "anxious any anyone anything appear application apply approach area argue arm around arrive art "
    "article artist ask assume atmosphere atom attack attention attract authority available average "
    "avoid away balance band bank base basic battle because become before behavior behind believe "
    "belong below benefit beside best better between beyond bill biology bird bit blow board body "
    "bone border born both bottom brain branch brief broad brother brown budget burn business cable "
    "call campaign cancer capital capture carbon care career case cause cell center central century "
    "certain challenge chance change chapter character charge chart cheap check chemical child choice "
    "circle citizen claim class classic climate cloud coast code collect college color combine come "
    "comfort command comment commit company compare complete complex compound concept concern "
    "condition conduct confirm connect consider constant contain content continue control convert "
    "core correct cost could count couple courage course cover create crime crisis cross crowd crust "
    "culture cup current customer cut cycle daily damage dance danger data date daughter dead deal "
    "death debate decade decide decision decline deep defense define degree deliver demand depend "
    "depth design desire detail develop device differ difficult digital direct discover discuss "
    "disease distance divide document dollar double doubt down dozen drama dream drop due during duty "
    "each early earn earth ease east economy edge effect effort either electric element else emotion "
    "employ encourage end enemy energy enjoy enough ensure enter entire environment equal escape "
    "especially essay estimate event ever evidence exact examine example except exchange exist expand "
    "expect expensive experience expert explain explore express extend extra eye face fact factor "
    "fail fair faith fall false family far fashion father fear feature federal feel female few fiction "
    "fight figure fill film final finance fine finger finish fire firm first flat flight floor flow "
    "focus food foot force foreign forget form formal former forward foundation four frame free "
    "freedom frequent friend front fuel function fund funny future gain game gas gather general "
    "generate gift glass global goal god gold golden good government grand grass gravity great ground "
    "group guess guide habit hair half hand happen harm head health hear heat height help hero high "
    "hill history hit home hope host hour huge human hundred hunt idea identify ignore image imagine "
    "impact improve include income increase indeed index individual industry influence inform initial "
    "inside instead interest internal interview into introduce invent invest invite iron issue item "
    "job join joint joke journey joy judge jump just justice keep kill kind king knowledge label labor "
    "lack land language last late laugh law layer lead learn least legal length less lesson level "
    "liberty lie life lift like limit line link liquid list listen literature live load loan logic "
    "look loss lot love low luck main maintain major male manage manner many mark mass master match "
    "material matter maximum may mean measure media medicine meet member memory mental mention method "
    "middle might military million mind mineral minute miss mission mix mode model moment money month "
    "mood moon moral more most mother motion mouth movement movie much muscle music must mystery "
    "narrow nation nature near nearly necessary negative network never news next night nitrogen noise "
    "normal north note nothing notice novel now number object observe occur ocean offer often oil "
    "once only opinion option orange order organ organize origin other outside over own oxygen pace "
    "pack page pain pair paragraph parent part particle partner party pass past path pattern pause pay "
    "peace people percent perfect perform perhaps period person phase photo phrase physical piece "
    "place plan planet plant plastic play pleasure plenty plot poem point police policy poor popular "
    "population position positive possible post pound power practice predict prefer prepare present "
    "president press pressure prevent price pride print private prize probably problem process "
    "produce product professor profit program project promise proof property protect protein proud "
    "prove provide purpose push quality quantity quarter queen question quick quite race raise range "
    "rate rather ratio raw reach react ready real reality reason receive recent recipe recommend "
    "record reduce refer reflect region relate relationship release religion rely remain remove "
    "repeat replace reply report represent request require research resource respond result return "
    "reveal review reward rhythm right rise risk rock role roof room root rule rural safe same sample "
    "satisfy save scale scene science score search season seat second secret section secure seek seem "
    "select sense separate series serious serve service set settle seven several shadow shape share "
    "sharp shift ship shock shoot shop should shoulder side sign signal silence similar since single "
    "sister site situation size skill skin sky smile smooth social society solar solid solution solve "
    "some son song soon sort soul source south space special species speech speed spend spirit split "
    "spread spring square stable staff stage stand standard star start state statement stay steel "
    "step still stock store storm strategy stream strength stress stretch strike structure struggle "
    "style subject success such sudden suffer suggest summer supply support sure surface surprise "
    "symbol system talent talk target task taste tax team technique technology television tell "
    "temperature tend term test text than theory there therefore thing thirty though thousand threat "
    "through time title today together tone tonight tool top topic total touch toward town track "
    "trade tradition traffic transfer travel treat trial trip trouble true trust truth try turn twice "
    "type under understand union unique unit universe unless until upon use usual value variety "
    "various vast version very victory view violence vision visit vital voice volume vote wage wait "
    "walk wall war warm waste wave way wealth weapon wear weather week weight welcome well west wheel "
    "when where whether which while whole wide wife wild will win wind wing winner winter wisdom wish "
    "within without woman wonder wood word work world worry worth would write wrong year yes yet young "
    "yourself zone"
).split()

ENDINGS = ("", "", "", "", "s", "s", "ed", "ing", "er", "ly", "al", "tion")

ADJECTIVES = (
    "small large old new red blue green yellow white black bright dark warm cold quiet loud fast "
    "slow happy sad kind brave clever strong simple useful beautiful heavy light soft hard clean "
    "fresh sweet long short tall deep young careful gentle curious famous important different "
    "common rare round empty full rich dry wet busy calm strange modern natural public local"
).split()

VERBS = _pairs("""see:saw, find:found, take:took, bring:brought, buy:bought, sell:sold, make:made,
give:gave, hold:held, keep:kept, lose:lost, draw:drew, paint:painted, open:opened, close:closed,
clean:cleaned, carry:carried, watch:watched, use:used, need:needed, want:wanted, like:liked,
move:moved, build:built, fix:fixed, show:showed, hide:hid, choose:chose, leave:left, follow:followed,
remember:remembered, describe:described, study:studied, write:wrote, read:read, eat:ate, drink:drank,
run:ran, go:went, come:came, swim:swam, sing:sang, speak:spoke, sleep:slept, think:thought,
know:knew, teach:taught, learn:learned, begin:began, break:broke, fly:flew, drive:drove, grow:grew""")

CAPITALS = _pairs("""Germany:Berlin, Italy:Rome, Spain:Madrid, Portugal:Lisbon, Austria:Vienna,
Greece:Athens, Poland:Warsaw, Norway:Oslo, Sweden:Stockholm, Denmark:Copenhagen, Finland:Helsinki,
Ireland:Dublin, Belgium:Brussels, Hungary:Budapest, Russia:Moscow, Turkey:Ankara, Egypt:Cairo,
Kenya:Nairobi, India:New Delhi, China:Beijing, Thailand:Bangkok, Vietnam:Hanoi, Cuba:Havana,
Peru:Lima, Chile:Santiago, Argentina:Buenos Aires, Mexico:Mexico City, Iran:Tehran, Iraq:Baghdad,
Iceland:Reykjavik, Romania:Bucharest, Bulgaria:Sofia, Croatia:Zagreb, Serbia:Belgrade,
Ghana:Accra, Morocco:Rabat, Nepal:Kathmandu, Indonesia:Jakarta, Jordan:Amman, Qatar:Doha""")

CONTINENTS = _pairs("""Germany:Europe, Italy:Europe, Spain:Europe, Poland:Europe, Norway:Europe,
Greece:Europe, Egypt:Africa, Kenya:Africa, Ghana:Africa, Morocco:Africa, India:Asia, China:Asia,
Thailand:Asia, Vietnam:Asia, Nepal:Asia, Peru:South America, Chile:South America,
Argentina:South America, Mexico:North America, Cuba:North America""")

OPPOSITES = _pairs("""hot:cold, big:small, tall:short, old:young, new:old, fast:slow, happy:sad,
light:dark, full:empty, open:closed, strong:weak, rich:poor, early:late, easy:difficult, wet:dry,
clean:dirty, hard:soft, loud:quiet, up:down, left:right, in:out, day:night, true:false, yes:no,
first:last, high:low, near:far, long:short, good:bad, front:back, begin:end, buy:sell, push:pull,
sweet:bitter, wide:narrow, thick:thin, deep:shallow, brave:afraid, alive:dead, heavy:light""")

YOUNG = _pairs("""cat:kitten, dog:puppy, horse:foal, cow:calf, sheep:lamb, goat:kid, pig:piglet,
hen:chick, duck:duckling, goose:gosling, bear:cub, lion:cub, deer:fawn, frog:tadpole, owl:owlet,
kangaroo:joey""")

SOUNDS = _pairs("""cat:meow, dog:woof, cow:moo, sheep:baa, pig:oink, duck:quack, horse:neigh,
lion:roar, owl:hoot, bee:buzz, mouse:squeak, snake:hiss, frog:croak, hen:cluck""")

COLORS = _pairs("""grass:green, snow:white, blood:red, coal:black, a lemon:yellow, a carrot:orange,
the sun:yellow, a tomato:red, milk:white, chocolate:brown, the sea:blue, a leaf:green,
an elephant:gray, a banana:yellow, a cherry:red""")

SYMBOLS = _pairs("""hydrogen:H, helium:He, carbon:C, nitrogen:N, oxygen:O, sodium:Na, iron:Fe,
copper:Cu, silver:Ag, tin:Sn, lead:Pb, zinc:Zn, calcium:Ca, neon:Ne, sulfur:S""")

COUNTS = _pairs("""legs does a spider have:8, legs does a dog have:4, legs does an ant have:6,
days are in a week:7, months are in a year:12, hours are in a day:24, minutes are in an hour:60,
seconds are in a minute:60, sides does a triangle have:3, sides does a square have:4,
sides does a hexagon have:6, wheels does a bicycle have:2, wheels does a car have:4,
letters are in the English alphabet:26, fingers are on one hand:5, years are in a century:100,
players are on a football team:11, strings does a violin have:4, eggs are in a dozen:12""")

MAKERS = _pairs("""the play Hamlet:William Shakespeare, the novel War and Peace:Leo Tolstoy,
the novel Oliver Twist:Charles Dickens, the novel Don Quixote:Miguel de Cervantes,
the poem The Odyssey:Homer, the play Faust:Johann Wolfgang von Goethe,
the novel The Trial:Franz Kafka, the novel Dracula:Bram Stoker,
the novel Frankenstein:Mary Shelley, the novel Emma:Jane Austen, the opera Carmen:Georges Bizet,
the opera Tosca:Giacomo Puccini, the book On the Origin of Species:Charles Darwin""")

NUMBER_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
).split()

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

MONTHS = (
    "January February March April May June July August September October November December"
).split()

# term: what kind of thing it is | what it does or is made of | one more sentence
EXPLANATIONS = [
    tuple(part.strip() for part in line.split("|"))
    for line in """
rain|water that falls from clouds|It forms when water vapor in the air cools and becomes drops
a cloud|a mass of small water drops in the sky|It can bring rain or snow to the ground
the moon|a natural satellite of the Earth|It reflects the light of the sun and causes the tides
the sun|a star at the center of the solar system|It gives light and heat to the Earth
a star|a very large ball of hot gas|It produces energy and light for billions of years
a planet|a large body that moves around a star|The Earth and Mars are planets of the solar system
a river|a natural stream of fresh water|It flows from higher land to a lake or to the sea
a volcano|a mountain that can release hot rock and gas|The melted rock is called lava
an earthquake|a sudden shaking of the ground|It happens when large pieces of the crust move
energy|the ability to do work|It can change from one form to another but it is never lost
electricity|a form of energy that comes from moving charges|People use it for light and machines
a magnet|an object that attracts iron and steel|It has a north pole and a south pole
heat|energy that moves from a warm object to a cold one|It makes particles move faster
sound|a wave that travels through air and other matter|The ear changes it into a signal
light|a form of energy that people can see|It travels faster than anything else
ice|water in its solid state|It forms when the temperature falls below zero degrees
steam|water in the form of a gas|It appears when water is heated to its boiling temperature
a cell|the smallest living part of a plant or an animal|It contains genetic material and proteins
the heart|an organ that moves blood through the body|It is a strong muscle and never rests
the brain|an organ that controls the body|It processes information and stores memories
the lungs|organs that bring oxygen into the blood|They also remove carbon dioxide
blood|a liquid that carries oxygen and nutrients|The heart moves it to every part of the body
a vitamin|a substance that the body needs in small amounts|Fruits and vegetables contain many
a virus|a very small particle that can cause disease|It needs a living cell to make copies
a vaccine|a medicine that prepares the body against a disease|It teaches the immune system
a plant|a living thing that uses sunlight to make food|It takes in water through its roots
a seed|a small part of a plant that can grow into a new one|It needs water and warm soil
a forest|a large area with many trees|It is home to many different animals and plants
a desert|a dry area with very little rain|Only special plants and animals can live there
climate|the usual weather of a region over many years|It changes with the distance from the sea
history|the study of events in the past|It helps people understand the present
geography|the study of places and the relationships between people and them|It uses many maps
biology|the science of living things|It studies plants and animals and how they develop
physics|the science of matter and energy|It describes motion and forces with mathematical laws
chemistry|the science of substances and their reactions|It explains how materials are formed
mathematics|the science of numbers and shapes|It includes algebra and geometry and statistics
a triangle|a shape with three sides and three angles|The sum of its angles is 180 degrees
a circle|a round shape|Every point on it has the same distance from the center
a fraction|a number that is a part of a whole|It is written as one number over another
an equation|a statement that two expressions are equal|It can contain unknown variables
a computer|a machine that processes information|It follows the instructions of a program
a program|a list of instructions for a computer|A programmer writes it in a programming language
an algorithm|a sequence of steps that solves a problem|Sorting a list is a common example
the internet|a global network of computers|It allows people to exchange messages and documents
a database|an organized collection of information|Programs can search it and update it quickly
software|the programs that run on a computer|It includes applications and operating systems
a function|a named part of a program that performs a task|It takes inputs and returns a value
a variable|a name for a value in a program|The value can change while the program runs
a language model|a program that predicts the next word of a text|It learns from many examples
a poem|a text that uses rhythm and images|It often expresses feelings in few words
a novel|a long story about people and events|It is usually written by one author
music|an art that uses sound and rhythm|It can express emotions such as joy and sadness
a symphony|a long piece of music for an orchestra|It usually has four movements
democracy|a system of government in which people vote|Citizens choose their representatives
a law|a rule made by a government|It protects the rights of people and communities
a contract|an agreement between two or more people|It describes what each of them must do
money|something that people use to pay for goods|It can be coins or paper or a number in a bank
inflation|a general rise of prices over time|It means that money can buy fewer things
a budget|a plan for income and spending|It helps a family or a company save money
a market|a place where people buy and sell goods|Prices change with supply and demand
trade|the exchange of goods between people or countries|It is an important part of the economy
exercise|physical activity that keeps the body healthy|Walking and running are good examples
sleep|a state of rest for the body and the mind|Most adults need about eight hours each night
a recipe|a list of ingredients and steps for a meal|It tells the cook what to do and when
bread|a food made from flour and water|It is baked in an oven until it is brown
friendship|a relationship between people who like each other|It needs trust and time
education|the process of learning and teaching|It gives people knowledge and skills
a museum|a building that shows art or historical objects|Visitors can learn about the past
culture|the customs and art and ideas of a group of people|It is passed from parents to children
recycling|the process of using old material again|It reduces waste and protects the environment
pollution|harmful material in air or water or soil|It is dangerous for people and animals
evolution|the slow change of living things over generations|It works through natural selection
a fossil|the remains of an ancient plant or animal in rock|Scientists study it to learn about life
""".strip().splitlines()
]

# request | pieces of advice (each is a sentence; the corpus picks two or three of them)
ADVICE = [
    (head.strip(), [piece.strip() for piece in rest.split("|")])
    for head, _, rest in (
        line.partition("|")
        for line in """
How can I sleep better|Go to bed at the same time each night|Keep the room dark and quiet|Do not drink coffee in the evening|Put your phone away before bed
How do I learn a new language|Practice a little every day|Listen to songs and simple stories|Speak with other people as often as possible|Write new words in a notebook
How can I save money|Make a budget and follow it|Cook at home more often|Compare prices before you buy something|Put a small part of your income away each month
How do I stay healthy|Eat plenty of fruit and vegetables|Exercise several times a week|Drink enough water|Get enough sleep and see a doctor when needed
How do I make tea|Boil some fresh water|Put a tea bag in a cup|Pour the hot water over it and wait three minutes|Add milk or sugar if you like
How can I write a good letter|Start with a friendly greeting|Explain the main point clearly|Keep your sentences short|End with your name and a kind word
How do I take care of a plant|Give it water when the soil is dry|Put it near a bright window|Turn it from time to time|Use a larger pot when it grows
How can I work with more focus|Choose one important task at a time|Turn off messages and other distractions|Take a short break every hour|Keep your desk clean
How do I plan a trip|Choose a place and a date|Compare tickets and hotels early|Make a list of things to see|Pack light and keep your documents safe
How can I be a better friend|Listen carefully and ask questions|Be honest and kind|Remember important dates|Offer help when it is needed
How do I cook rice|Rinse the rice with cold water|Use two cups of water for one cup of rice|Cook it on low heat until the water is gone|Let it rest for five minutes
How can I learn to program|Start with a simple language such as Python|Write small programs every day|Read the code of other people|Find a project that interests you
How do I prepare for an exam|Review your notes a little each day|Solve old problems without help|Explain the ideas to a friend|Sleep well the night before
How can I reduce stress|Take a slow walk outside|Breathe deeply for a few minutes|Talk with someone you trust|Do something that you enjoy
How do I start a garden|Choose a place with enough sunlight|Prepare the soil with compost|Begin with plants that are easy to grow|Water them early in the morning
How can I speak well in public|Know your main message|Practice in front of a mirror|Speak slowly and look at the audience|Use short examples and stories
""".strip().splitlines()
    )
]

SYSTEMS = [
    f"You are a {kind} {role}."
    for kind in ("helpful", "friendly", "careful", "patient")
    for role in "assistant,teacher,writer,historian,doctor,cook,travel agent,programmer".split(",")
] + [
    "Answer briefly.",
    "Answer in one sentence.",
    "Be kind and clear.",
    "You are tiny, a small language model.",
    "Answer with the number only.",
]
