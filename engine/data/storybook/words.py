"""The words of the storybook: one table for each slot of the plots.

A line reads `words: forms`, where the forms of each of these words stand in the order that the
table's first line gives. {toy} is a word of the table toy; {animal.sound} is the form `sound` of
the animal that the story is about.
"""

from __future__ import annotations

TABLES = """
hero: he him his child
  mia anna ella ruby nora zoe emma clara lucy rosie hazel molly sara tess: she her her girl
  wendy jane kate maya nina penny polly rita sophie tara vera alice bella: she her her girl
  tom ben sam max leo finn jack noah owen oscar peter luke adam eric: he him his boy
  felix george henry hugo jacob karl liam milo ned oliver paul ralph simon: he him his boy

friend: he him his
  amy beth carla dora eva fiona gina holly jill kim lola nelly: she her her
  pam rachel sally tina vicky wanda yara zara: she her her
  alan bob carl dan frank gus harry ivan joe ken lars nick: he him his
  otto rob sid ted tim vince wes zane: he him his

relative: he him
  mother mom grandmother grandma aunt sister: she her
  father dad grandfather grandpa uncle brother: he him

day
  monday tuesday wednesday thursday friday saturday sunday

time
  morning afternoon evening

colour
  red blue green yellow pink purple orange brown white black grey golden silver

size
  big small little tiny huge enormous

toy
  ball doll puppet robot boat train truck marble teddy car plane rocket dinosaur tractor
  wagon balloon whistle puzzle airplane engine

fair
  sunny warm bright mild clear lovely

sad
  sad upset worried unhappy gloomy miserable

glad
  happy glad proud cheerful joyful delighted

animal: sound snack home
  duck: quacked seeds pond
  frog: croaked worms swamp
  dog: barked meat farm
  puppy: yapped biscuits kennel
  cat: meowed fish cottage
  kitten: mewed milk barn
  hen: clucked corn coop
  goat: bleated hay hill
  pony: neighed oats stable
  donkey: brayed carrots shed
  owl: hooted mice oak
  goose: honked bread lake
  crow: cawed crumbs nest
  mouse: squeaked cheese hole
  pig: grunted turnips pen
  squirrel: chattered nuts tree
  bird: chirped berries hedge
  calf: mooed grass meadow

dish: part cooked pot
  cake: eggs baked pan
  pie: apples baked pan
  bread: flour baked tray
  pizza: tomatoes baked tray
  pudding: raisins baked tin
  soup: carrots boiled pot
  stew: beans boiled kettle
  jam: berries boiled pot
  pasta: mushrooms boiled pot
  porridge: oats warmed pot
  salad: cucumbers mixed bowl
  popcorn: corn warmed pan

plant: kind
  bean pea pumpkin carrot cabbage tomato onion: vegetable
  tulip sunflower poppy orchid: flower

built: stuff tool
  tower: bricks ladder
  castle: stones shovel
  tent: blankets rope
  fort: pillows string
  bridge: planks hammer
  raft: logs saw
  birdhouse: boards drill
  igloo: snow spade
  hut: branches axe
  maze: boxes marker

skill: where
  swim dive: pool
  skate: rink
  ski: slope
  surf: beach
  row: lake
  climb: gym
  dance: hall
  paint: studio
  sing: theater
  read: library
  sew: shop

gift: made
  scarf hat sweater: knitted
  bracelet necklace: threaded
  picture card mask: painted
  basket mat: woven
  kite lantern: folded
  pillow apron: sewn

weather: noun wear fun
  rainy: rain boots puddles
  snowy: snow mittens snowballs
  windy: wind jacket kites
  sunny: sunshine cap sprinklers
  foggy: fog coat lanterns
  frosty: frost gloves icicles
  cloudy: drizzle sweater bubbles

fragile
  vase cup plate lamp mirror jar teapot clock saucer ornament

instrument
  piano guitar violin flute trumpet harp cello banjo drum organ
"""

Row = dict[str, str]  # the forms of one word; the word itself is the form ""


def read_tables(text: str = TABLES) -> dict[str, list[Row]]:
    """The rows of each table."""
    tables: dict[str, list[Row]] = {}
    for block in text.strip().split("\n\n"):
        head, *lines = block.split("\n")
        name, _, names = head.partition(":")
        rows = tables[name] = []
        for line in lines:
            words, _, forms = line.partition(":")
            row = dict(zip(names.split(), forms.split(), strict=True))
            rows += [{"": word, **row} for word in words.split()]
    return tables
