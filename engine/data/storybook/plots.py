"""The plots of the storybook, as text: what can happen, beat after beat.

A plot begins with `== name`, each of its beats with `*`; the lines with `|` say the same beat in
another way. [red|blue] is a choice; {toy} a word of the table toy, {animal.sound} a form of it;
{he} is short for {hero.he}; {a} is a or an, as the next word asks; {Hero} begins with a capital.
"""

from __future__ import annotations

PLOTS = """
== lost toy
* {Hero} had {a} {colour} {toy}. {He} took it everywhere.
| {Hero} loved {his} {colour} {toy} and [cleaned|hugged] it every night.
| Once there was a {child} named {Hero} who had {a} {colour} {toy}.
| {A} {colour} {toy} was the best thing {Hero} had.
* One {time}, the {toy} was [gone|lost]. {Hero} felt {sad}.
| On {Day} {he} cried, "Where is my {toy}?"
| But on {Day} the {toy} [vanished|disappeared], and {Hero} was {sad}.
* {He} [looked|searched] under the [bed|sofa] and behind the [door|curtain].
| {His} {relative} helped {him} look in every [room|corner|drawer].
| "Where did you have it [last|before]?" asked {his} {relative}.
* At last {he} saw something {colour} in the [laundry|bathtub].
| Then {he} [spotted|found] the {toy} under a pile of [socks|towels].
| Then a neighbor [knocked|came] and gave the {toy} back.
* {Hero} hugged the {toy} and [promised|decided] to keep it safe.
| From then on, {Hero} kept the {toy} on a [shelf|chair].
| "Welcome home, {toy}!" [laughed|giggled] {Hero}.

== dark night
* It was late. {Hero} lay in bed with {his} {colour} {toy}.
| {Hero} could not sleep. {He} held {his} {colour} {toy} tight.
| {Hero} was afraid of the night and took {a} {colour} {toy} to bed.
* There was a [creak|scratch] near the [window|closet].
| Thunder [rumbled|boomed] outside, and lightning [flashed|crackled].
| A strange [shadow|shape] [crept|danced] across the wall.
* "Help! A [monster|ghost|dragon]!" cried {Hero}, and {his} {relative} came.
| {He} [trembled|shivered] and called {his} {relative}, who [hurried|rushed] in.
| {Hero} hid under the blanket until {his} {relative} came.
* "You are safe here," said {his} {relative} [softly|gently].
| {Relative.he} lit a small lamp and [hummed|sang] a lullaby.
| They counted [sheep|minutes] together until all was [still|quiet].
* {Hero} smiled, kissed the {toy} and fell asleep.
| "Good night, {toy}," said {Hero} and was soon [dreaming|snoring].
| Now {Hero} and the {toy} were not afraid anymore.

== cooking
* {Hero} and {his} {relative} were hungry and decided to make {dish}.
| On {Day} {Hero} and {his} {relative} wanted to make {dish}.
| "Let us make {dish} for [dinner|lunch]," said {Hero} to {his} {relative}.
* {Hero} put on an apron and brought the {dish.part}.
| First they [bought|fetched] {dish.part}. Then {Hero} cleaned the {dish.pot}.
| {His} {relative} got the {dish.part}, and {he} found the {dish.pot}.
* {Hero} added [salt|sugar] to the {dish.part}, and they {dish.cooked} it.
| {He} put in the {dish.part} and waited while they {dish.cooked} it.
| They {dish.cooked} everything [slowly|carefully] in the {dish.pot}.
* Soon the [kitchen|house] smelled [delicious|sweet].
| Oh no, {he} [spilled|dropped] a bit on the floor!
| "Careful, the {dish.pot} is [sticky|slippery]!" said {his} {relative}.
* {Hero} ate [two|three] helpings of {dish} and was {glad}.
| They shared the {dish} with the [neighbors|twins], and everybody thanked {Hero}.
| "This is the best {dish} ever," {Hero} told {his} {relative}.

== quarrel
* {Hero} and {Friend} played with {a} {colour} {toy} in the [yard|sandbox].
| {Hero} and {Friend} both wanted the same {colour} {toy}.
| One {time}, {Hero} showed {a} {colour} {toy} to {Friend}.
* "Give it to me, {Friend}!" [shouted|yelled] {Hero}.
| Then {Friend} [grabbed|snatched] the {toy} and did not want to share.
| Soon they began to [argue|fight] about the {toy}.
* {Hero} stamped {his} foot, and {Friend} [frowned|pouted] in a corner.
| They did not [speak|talk] for an hour, and both were {sad}.
| {Hero} ran home with tears on {his} [cheeks|face].
* "I am sorry I was [mean|rude]," said {Friend}.
| {His} {relative} said that a friend is more special than {a} {toy}.
| Then {Hero} held out {his} hand. "Please forgive me, {Friend}."
* So {Hero} and {Friend} took turns with the {toy} until [sunset|bedtime].
| {Friend} [grinned|winked], and {Hero} gave {friend.him} the {toy} for a week.
| After that, the {colour} {toy} belonged to {Hero} and {Friend} together.

== planting
* In [spring|April|May], {Hero} got {a} {plant} seed from {his} {relative}.
| {Hero} found a [flat|tiny] seed. "{A} {plant}," said {his} {relative}.
| {Hero} and {his} {relative} wanted to grow {a} {plant} in the garden.
* {He} dug a hole and put the seed into the [soil|dirt].
| {He} filled a clay pot and [pushed|pressed] the seed down.
| They [planted|buried] it in a [sunny|cozy] spot by the [fence|gate].
* Every {time} {Hero} gave it water from {a} {colour} [can|hose].
| Each day {he} [pulled|picked] weeds and chased the [snails|beetles] away.
| For weeks nothing happened. "Be patient," said {his} {relative}.
* Then a green [leaf|stem] [poked|peeped] out of the ground.
| Rain fell, and {a} {size} leaf [opened|unfolded] in the light.
| Little by little it grew as high as {his} [knee|belly].
* At last {Hero} had {a} {size} {plant}, a fine {plant.kind}.
| In [summer|June|July] the {plant} was ready, and {Hero} was {glad}.
| {Hero} won a [ribbon|medal] for the biggest {plant.kind}, {a} {plant}.

== building
* {Hero} and {Friend} wanted to build {a} {size} {built}.
| "Let us build {a} {built}, {Friend}!" said {Hero}.
| On {Day}, {Hero} and {Friend} drew {a} {size} {built} on [paper|cardboard].
* They collected {built.stuff} and got {a} {built.tool} from the [carpenter|farmer].
| {Friend} [dragged|carried] the {built.stuff}, and {Hero} carried the {built.tool}.
| {Hero} piled up the {built.stuff}, while {Friend} held the {built.tool}.
* It was hard work, and they [sweated|puffed] all {time}.
| Then a dog knocked it over, and they started again.
| "It [leans|wobbles] too much," said {Friend} and [fixed|changed] it.
* {Friend} put a flag on top, and {Hero} [decorated|covered] it with {colour} paint.
| They added more {built.stuff} until it was [strong|solid] enough.
| {Hero} [measured|checked] it twice, and {Friend} put away the {built.tool}.
* At last the {built} was [finished|ready]. {Hero} and {Friend} cheered.
| "Our {built} is [perfect|amazing]!" said {Hero}, and {Friend} clapped.
| Everyone in the [village|town] praised the {built} of {Hero} and {Friend}.

== race
* One {fair} {time}, {Hero} and {Friend} raced to the [mill|tower].
| "I am faster than you, {Hero}," said {Friend} one {fair} {time}.
| There was a race at [school|camp], and {Hero} ran against {Friend}.
* "Ready, set, go!" called the [teacher|coach].
| {Hero} tied {his} {colour} [shoes|laces] and stood at the line.
| They started beside the [bench|well], and {Friend} took the lead.
* Halfway there, {Friend} [tripped|stumbled] over a [root|stone].
| {Hero} was ahead when {Friend} fell in the [mud|ditch] with a cry.
| Suddenly {Friend} had to stop, because {friend.his} [ankle|toe|knee] hurt.
* {Hero} turned [around|back] and helped {friend.him} up.
| "Take my [arm|hand], {Friend}," said {Hero} and stopped.
| {Hero} gave {friend.him} a [bandage|drink] and waited with {friend.him}.
* {Hero} and {Friend} crossed the line side by side.
| They came in last, but {Hero} and {Friend} were {glad}.
| Both got a [trophy|badge], and {Friend} called {Hero} a [hero|champion].

== gift
* For the birthday of {Friend}, {Hero} wanted to give {friend.him} {a} {gift}.
| {Hero} planned to make {a} {gift} for {Friend}, who would be [six|seven].
| {Hero} had no [money|coins] but wished to give {Friend} {a} {gift}.
* So {he} sat down with {his} {relative} and made {a} {colour} one.
| In secret, {he} worked on the {gift} for many hours.
| {His} {relative} showed {him} how it was {gift.made}.
* {He} wrapped the {gift} in [shiny|striped] paper and tied a bow.
| {He} laid the {gift} in a box and wrote a [note|poem] for {Friend}.
| "I hope it is good enough," [thought|whispered] {Hero}.
* At the party, {Friend} opened the [parcel|present] with wide eyes.
| {Friend} [untied|unwrapped] it, while {Hero} [blushed|waited].
| There were [candles|balloons], and {Friend} [shook|opened] the [parcel|present].
* "You have {gift.made} this {gift} yourself, {Hero}!" said {Friend}.
| {Friend} kept the {gift} that {Hero} had {gift.made} for many years.
| {Friend} thanked {Hero} for {a} {gift} that was {gift.made} with [love|care].

== learning
* {Hero} wanted to {skill}, but {he} did not know how.
| All the [others|cousins] could {skill}, only {Hero} could not.
| "I will never learn to {skill}," said {Hero}.
* So {his} {relative} took {him} to the {skill.where} on {Day}.
| "I will [teach|show] you at the {skill.where}," said {his} {relative}.
| One {fair} {time} {his} {relative} went to the {skill.where} with {him}.
* At first it was [hard|difficult], and {he} made many mistakes.
| {Hero} [failed|struggled] [often|ten times] and wanted to give up.
| {His} knees shook, and {his} heart [pounded|thumped].
* "[Breathe|Relax] and try once more," said {his} {relative}.
| But {Hero} was [brave|stubborn] and came to the {skill.where} every {time}.
| {His} {relative} [praised|encouraged] {him}, and it went better each time.
* A month later, {Hero} could {skill} [well|alone].
| "Look, I can {skill}!" {Hero} told {his} {relative}.
| Now {Hero} loved to {skill}, and {he} even taught a [younger|smaller] child.

== visitor
* One {weather} {time}, {Hero} found {a} {animal} at the door. It {animal.sound}.
| {A} [little|young] {animal} came to the house of {Hero} and {animal.sound}.
| {A} [strange|lonely] {animal} sat in the yard of {Hero} and {animal.sound} [loudly|softly].
* "Are you [hungry|lost], my friend?" asked {Hero}.
| It [blinked|stared] at {him} with [round|clever] eyes.
| {His} {relative} said, "Maybe this {animal} wants to [eat|stay]."
* {He} brought it some {animal.snack} and a cup of water.
| {Hero} got {animal.snack}, and the {animal} [gobbled|nibbled] everything.
| {Hero} and {his} {relative} got {animal.snack} for the {animal}.
* They played in the [grass|straw] until it grew [dark|cool].
| The {animal} let {him} [stroke|pat] its back and [rested|napped].
| {Hero} wanted to keep it, but it looked [sad|worried].
* Then {Hero} brought the {animal} back to its {animal.home}.
| At [dusk|sunset] the {animal} went home to its {animal.home}, and {Hero} waved.
| Now {Hero} often visits the {animal} at its {animal.home} with {animal.snack}.

== weather
* It was {a} {weather} {time}, and {Hero} loved the {weather.noun}.
| "What a {weather} day!" said {Friend} to {Hero}.
| It was {weather} on {Day}, and {Hero} was [bored|restless].
* "Take your {weather.wear}," said {his} {relative} to {Hero}.
| {He} put on {his} {colour} {weather.wear} and went out with {Friend}.
| {Hero} liked the {weather.noun}, because {he} had {his} {colour} {weather.wear}.
* {Hero} and {Friend} played with the {weather.fun} and laughed a lot.
| {Friend} found {weather.fun}, and {Hero} [tried|liked] them.
| {Friend} [pointed|ran] to the {weather.fun}. "Come and play, {Hero}!"
* When the {weather.noun} became too [much|strong], they hid under a [roof|tree].
| Then {Friend} lost {friend.his} {weather.wear}, and they looked everywhere.
| They [invented|made up] a [game|dance] about the {weather.noun}.
* {Hero} came home [tired|dirty], and {Friend} talked about the {weather.fun}.
| "I like {weather} days best," said {Hero} to {Friend}.
| Later {Hero} drank tea with {Friend} and told about the {weather.fun}.

== rescue
* {Hero} and {Friend} heard {a} {animal} near the [market|bakery].
| {Hero} and {Friend} saw {a} [young|poor] {animal} in [trouble|danger].
| "Listen, {Friend}!" said {Hero} when {he} heard {a} {animal}.
* It {animal.sound} [sadly|weakly], because it was [stuck|caught] in a [net|bucket].
| The {animal} was [trapped|tangled] in some wire and {animal.sound} for help.
| It was [cold|weak] and {animal.sound} in [pain|fear].
* {Hero} [climbed|crawled] in and [lifted|pulled] it out.
| "Do not be afraid," said {Hero} and [freed|washed] its foot.
| {Friend} got a [doctor|vet], and {Hero} kept it warm in {his} [jacket|arms].
* They gave it {animal.snack}, and soon it {animal.sound} [happily|brightly].
| "It needs {animal.snack} and [rest|sleep]," said {Friend}.
| {Hero} fed it with {animal.snack} from {his} [pocket|backpack].
* Then {Hero} and {Friend} set the {animal} free near its {animal.home}.
| Soon the {animal} was back at its {animal.home}, thanks to {Hero} and {Friend}.
| {Hero} and {Friend} took the {animal} to its {animal.home} and waved.

== sick friend
* {Friend} was [sick|ill] and had to stay in bed. {Hero} was {sad}.
| "{Friend} has a [fever|cold]," said the teacher to {Hero} on {Day}.
| {Hero} missed {his} friend {Friend}, who had a sore [throat|tummy].
* {Hero} asked {his} {relative} to help {him} make {dish}.
| "Let us make {dish} for {Friend}," said {his} {relative}.
| {His} {relative} knew a [recipe|trick] for {dish}, and {Hero} asked for it.
* They took {dish.part} from the [pantry|fridge] and {dish.cooked} it together.
| {Hero} [bought|chose] {dish.part}, and soon all was {dish.cooked}.
| With {dish.part} from the [cellar|shop], they {dish.cooked} it in an hour.
* {Hero} knocked at the door of {Friend} and gave {friend.him} the {dish}.
| {He} [carried|brought] the {dish} down the [lane|road] to {Friend}.
| {Friend} sat up in bed and [smelled|tasted] the {dish} with a [weak|shy] smile.
* {Friend} ate the {dish}. "You are a [true|good] friend, {Hero}."
| Two days later {Friend} was well, and {friend.he} [danced|jumped] with {Hero}.
| {Friend} laughed. "Your {dish} [cured|saved] me, {Hero}!"

== broken thing
* {Hero} [threw|kicked] a ball in the house and hit the {colour} {fragile}.
| {Hero} bumped into a table with {a} {colour} {fragile} on it.
| {Hero} ran through the kitchen and knocked down {a} {colour} {fragile}.
* [Crash|Bang]! The {fragile} broke into [pieces|bits].
| It fell to the floor, and now the {fragile} had a [crack|chip].
| "Oh dear," [whispered|cried] {Hero}. The {fragile} was [ruined|broken].
* {He} wanted to hide it in the [trash|basement], but {he} felt {sad}.
| {He} could blame the [cat|wind], but that was not [fair|honest].
| {His} [stomach|heart] felt heavy, and {he} could not eat.
* So {he} went to {his} {relative} and told the truth.
| "I am sorry I broke the {fragile}," {Hero} told {his} {relative}.
| {His} {relative} asked about the {fragile}, and {Hero} [confessed|explained] everything.
* {Relative.he} was not angry. {Hero} helped {relative.him} to glue the {fragile}.
| {His} {relative} thanked {Hero} for the truth and fixed the {fragile}.
| {Hero} saved {his} [pennies|coins] and bought {relative.him} {a} {colour} {fragile}.

== music
* {Hero} played the {instrument} every {time}.
| {Hero} got an old {instrument} from {his} {relative} and loved it.
| "Will you play the {instrument}, {Hero}?" asked the [mayor|king|queen].
* But {he} was [shy|nervous], and {his} [fingers|hands] shook.
| At first the {instrument} sounded like a [squeaky|rusty] [gate|wheel].
| {He} practiced a [song|march] until {his} {relative} knew it by heart.
* "Just play it for me," said {his} {relative}.
| On {Day} there was a [concert|show], and {he} put on {a} {colour} [suit|costume].
| {Friend} came and said, "Let us practice together, {Hero}."
* {Hero} [bowed|smiled] and began to play the {instrument}.
| On the stage {he} closed {his} eyes, and the music [floated|soared].
| {Hero} forgot a note, but {he} went on [bravely|boldly].
* Everyone clapped for {Hero} and {his} {instrument}, and {he} was {glad}.
| "[Bravo|Hooray], {Hero}! I love your {instrument}," called {his} {relative}.
| {Hero} [kissed|patted] the {instrument} and felt {glad}.
"""
