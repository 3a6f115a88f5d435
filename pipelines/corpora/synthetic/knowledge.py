"""The world of the generated passages: domains, their fields, and the words that belong together in each.

Every list runs from one end of its field to the other, so that neighbours in it belong together: the words of a passage
come from the same stretch of the lists as its subject does. Domains, fields and subjects are used by Zipf's law, in order.
"""

from __future__ import annotations

# domain -> field -> {subjects, parts, acts, settings}; fields of one line each, items divided by "; "
WORLD: dict[str, dict[str, dict[str, str]]] = {
    "geography": {
        "rivers and lakes": {
            "subjects": "the Danube; the Rhine; the Loire; the Volga; the Mississippi; the Ohio River; Lake Superior; Lake Baikal; the Amazon; the Orinoco; the Zambezi; the Nile; the Ganges; the Mekong; the Yangtze",
            "parts": "tributary; watershed; gorge; lock; canal; levee; shoreline; depth; rainforest basin; waterfall; cataract; floodplain; silt; delta; dam",
            "acts": "rises in the mountains and flows east; passes through several capitals; is regulated by weirs; freezes over in winter; carries barges of grain; was dredged for shipping; holds a fifth of the fresh water of its continent; is home to freshwater seals; drains a vast rainforest; overflows during the wet season; plunges over basalt cliffs; deposits fertile mud every summer; irrigates rice terraces; feeds the largest hydroelectric reservoir in the region",
            "settings": "Central Europe; the northern lowlands; the Great Lakes region; the Siberian taiga; tropical South America; southern Africa; the Egyptian desert; the plains of Bengal; southern China",
        },
        "mountains and volcanoes": {
            "subjects": "Mont Blanc; the Matterhorn; the Dolomites; the Pyrenees; the Caucasus; Mount Everest; K2; the Andes; Aconcagua; Mount Rainier; Mount Fuji; Krakatoa; Vesuvius; Etna; Kilauea",
            "parts": "ridge; summit; glacier; col; moraine; base camp; death zone; plateau; cordillera; snowfield; cone; caldera; ash column; lava flow; magma chamber",
            "acts": "was first climbed by guides from a nearby valley; draws thousands of hikers each summer; was carved by ice; separates two languages; rises by a few millimetres a year; can be climbed only in a short window in May; claims several lives each season; was formed by a subducting plate; is the highest point of its continent; is covered by permanent snow; last erupted in the eighteenth century; buried two towns under pumice; sends steam into the air; adds new land to the coast",
            "settings": "the western Alps; the Basque country; the Himalaya; the Karakoram; Patagonia; the Cascade Range; the Ring of Fire; the Bay of Naples; the Hawaiian islands",
        },
        "cities and states": {
            "subjects": "Vienna; Prague; Lisbon; Edinburgh; Boston; Chicago; Houston; Ohio; Texas; Nebraska; Mexico City; Lagos; Nairobi; Mumbai; Jakarta; Seoul",
            "parts": "old town; cathedral square; tram network; harbour; metropolitan area; county seat; school district; suburb; zip code; census tract; highway; informal settlement; population density; slum; skyline",
            "acts": "was the seat of an empire; has a university founded in the fourteenth century; was rebuilt after an earthquake; grew around its port; became a centre of meatpacking and steel; was incorporated as a city in 1837; is divided into counties; had a population of some two million at the last census; is governed by a mayor and a council; was settled by German immigrants; suffers from subsidence; is the commercial capital of the country; doubled in size within twenty years; is known for its traffic",
            "settings": "the Habsburg lands; the Atlantic coast; New England; the Midwest; the Great Plains; the Gulf coast; West Africa; the Indian subcontinent; Southeast Asia",
        },
        "climate and seas": {
            "subjects": "the Gulf Stream; the North Sea; the Baltic; the Mediterranean climate; the monsoon; the trade winds; a tropical cyclone; a tornado; El Niño; the jet stream; the Sahara; permafrost; sea ice; the Southern Ocean",
            "parts": "current; tide; salinity; drought; rainy season; wind belt; storm surge; funnel cloud; sea surface temperature; pressure system; sand dune; frozen soil; ice shelf; albedo",
            "acts": "carries warm water northward; keeps the winters mild; brings hot dry summers; arrives in June and withdraws in September; was used by sailing ships; loses strength over land; is measured on the Fujita scale; shifts rainfall across the Pacific; steers storms toward the coast; expands southward; releases methane as it thaws; reaches its smallest extent in September; surrounds a frozen continent",
            "settings": "the North Atlantic; Scandinavia; southern Europe; India; the Caribbean; Oklahoma and Kansas; the equatorial Pacific; North Africa; the Arctic; Antarctica",
        },
    },
    "biology": {
        "mammals": {
            "subjects": "the grey wolf; the red fox; the brown bear; the snow leopard; the African lion; the cheetah; the elephant; the giraffe; the chimpanzee; the orangutan; the red kangaroo; the platypus; the fruit bat; the sperm whale; the bottlenose dolphin",
            "parts": "pack; den; fur; paw; mane; territory; tusk; herd; troop; thumb; pouch; burrow; wing membrane; blubber; blowhole",
            "acts": "hunts deer in packs; howls to mark its range; hibernates from November to March; stalks ibex on steep slopes; lives in prides led by females; reaches a speed of a hundred kilometres per hour; mourns its dead; browses on acacia leaves; uses sticks to fish for termites; builds a nest of branches each night; carries its young in a pouch; lays eggs although it is a mammal; finds its way by echolocation; dives for an hour after giant squid; recognises itself in a mirror",
            "settings": "northern forests; the Rocky Mountains; Central Asia; the savanna; the Serengeti; the Congo basin; Borneo; the Australian outback; the open ocean",
        },
        "birds and insects": {
            "subjects": "the barn owl; the peregrine falcon; the bald eagle; the barn swallow; the Arctic tern; the emperor penguin; the hummingbird; the honey bee; the bumblebee; the monarch butterfly; the army ant; the termite; the mosquito; the ladybird",
            "parts": "feather; talon; beak; clutch of eggs; flyway; colony; nectar; hive; pollen; caterpillar; queen; mound; larva; antenna",
            "acts": "hunts voles at dusk; dives at its prey from a great height; builds a huge nest of sticks; migrates to Africa each autumn; breeds on the ice in winter; hovers while it feeds; dances to show the way to flowers; pollinates tomatoes and clover; flies thousands of miles to Mexico; marches in columns through the forest; digests wood with the help of microbes; transmits malaria; eats aphids in gardens; moults twice a year",
            "settings": "farmland; sea cliffs; wetlands; the tundra; Antarctica; tropical gardens; orchards; meadows; milkweed fields; the rainforest floor",
        },
        "plants and fungi": {
            "subjects": "the oak; the giant sequoia; the Scots pine; the apple tree; the olive; the grape vine; wheat; maize; rice; the tomato; the tulip; the orchid; moss; the fly agaric; baker's yeast",
            "parts": "acorn; bark; cone; blossom; orchard; rootstock; ear; kernel; paddy; seedling; bulb; petal; spore; cap; mycelium",
            "acts": "may live for a thousand years; is adapted to fire; keeps its needles in winter; is grafted onto dwarfing stock; ripens in October; was domesticated in the Fertile Crescent; needs warm soil to germinate; is grown in flooded fields; was brought to Europe from the Americas; caused a speculative bubble in the seventeenth century; deceives male wasps; spreads by spores; is poisonous if eaten raw; ferments sugar to alcohol",
            "settings": "temperate woodland; the Sierra Nevada; the Mediterranean; Mesopotamia; Mesoamerica; the rice terraces of Asia; Dutch gardens; damp forests; breweries and bakeries",
        },
        "cells and genes": {
            "subjects": "the mitochondrion; the ribosome; the chloroplast; the cell membrane; haemoglobin; insulin; an enzyme; messenger RNA; DNA polymerase; the chromosome; a gene; mutation; meiosis; natural selection; the bacterium Escherichia coli; the influenza virus",
            "parts": "inner membrane; subunit; thylakoid; lipid bilayer; oxygen molecule; receptor; active site; codon; double helix; base pair; allele; gamete; fitness; plasmid; capsid",
            "acts": "produces most of the energy of the cell; translates the genetic code into protein; captures light; lets small molecules pass; binds oxygen in the lungs; lowers the level of sugar in the blood; speeds up a reaction without being consumed; leaves the nucleus through pores; copies one strand of the double helix; carries thousands of genes; can be inherited from either parent; halves the number of chromosomes; favours traits that help survival; divides every twenty minutes; escapes immunity by changing its surface",
            "settings": "plant cells; the cytoplasm; red blood cells; the pancreas; the nucleus; the germ line; populations; the human gut; the respiratory tract",
        },
    },
    "history": {
        "antiquity": {
            "subjects": "the Roman Republic; Julius Caesar; Augustus; the Punic Wars; Carthage; Alexander the Great; Sparta; Athens; the Persian Empire; Babylon; the pharaohs; Cleopatra; the Han dynasty; the Maurya Empire",
            "parts": "senate; legion; triumph; aqueduct; war elephant; phalanx; hoplite; assembly; satrapy; ziggurat; pyramid; papyrus; silk road; edict",
            "acts": "expanded over the whole peninsula; crossed the Rubicon with a single legion; ended a century of civil war; was destroyed after a siege of three years; founded cities that bore his name; trained its boys for war; invented rule by the people; was divided into provinces; kept records on clay tablets; was buried with treasure; allied with a Roman general; built a wall against nomads; converted to Buddhism; collected tribute in grain and silver",
            "settings": "Italy; Gaul; North Africa; Macedonia; Greece; Asia Minor; Mesopotamia; Egypt; China; northern India",
        },
        "middle ages": {
            "subjects": "Charlemagne; the Vikings; the Norman conquest; William the Conqueror; the First Crusade; the Knights Templar; Magna Carta; the Black Death; Joan of Arc; the Hanseatic League; the Ottoman Turks; the Mongol Empire; Genghis Khan; the Byzantine Empire",
            "parts": "coronation; longship; castle; feudal oath; pilgrimage; monastery; charter; plague pit; siege; guild; galley; cavalry; tribute; icon",
            "acts": "was crowned by the pope; raided monasteries on the coast; replaced the ruling class within a generation; marched to Jerusalem; was dissolved on charges of heresy; limited the power of the king; killed a third of the population; was burned at the stake; controlled trade in herring and fur; captured the city after fifty-three days; rode from the steppe to the Danube; united the tribes; preserved the learning of the Greeks; minted a gold coin that was trusted everywhere",
            "settings": "the Frankish kingdom; Scandinavia; England; Normandy; the Holy Land; Florence; Orléans; Lübeck; Constantinople; the steppe",
        },
        "modern wars": {
            "subjects": "the American Revolution; George Washington; the French Revolution; Napoleon; the Battle of Waterloo; the American Civil War; Abraham Lincoln; the First World War; the Battle of Verdun; the Second World War; D-Day; Stalingrad; the Cold War; the Cuban Missile Crisis; the Vietnam War",
            "parts": "continental army; declaration; guillotine; cavalry charge; regiment; emancipation; trench; artillery barrage; convoy; landing craft; tank division; armistice; nuclear arsenal; blockade; helicopter",
            "acts": "began as a quarrel over taxes; crossed the Delaware at night; abolished feudal privileges; was exiled to an island; ended in defeat by allied armies; divided the nation over slavery; was assassinated in a theatre; was fought over a few miles of mud; lasted for ten months; cost tens of millions of lives; landed troops on five beaches; surrendered after a winter siege; led to an arms race; brought the world close to nuclear war; was protested on college campuses",
            "settings": "the thirteen colonies; Paris; Belgium; Virginia; Gettysburg; the Western Front; Normandy; the eastern front; Berlin; Southeast Asia",
        },
        "exploration and empire": {
            "subjects": "Christopher Columbus; Vasco da Gama; Ferdinand Magellan; the Aztec Empire; Hernán Cortés; the Inca; the East India Company; the slave trade; James Cook; the Louisiana Purchase; Lewis and Clark; the Gold Rush; the British Raj; Mahatma Gandhi",
            "parts": "caravel; spice cargo; strait; temple; conquistador; road network; trading post; plantation; chart; treaty; expedition; prospector; railway; salt march",
            "acts": "sailed west in search of the Indies; opened the sea route to India; was killed before the voyage ended; fell to a few hundred soldiers and their allies; recorded numbers in knotted cords; ruled through local princes; shipped millions of people across the ocean; mapped the coast of New Zealand; doubled the size of the country; followed the Missouri to its source; drew three hundred thousand people to California; ended with partition; preached nonviolent resistance",
            "settings": "Spain; Lisbon; the Spice Islands; Mexico; Peru; Bengal; West Africa; the South Pacific; the American West; India",
        },
    },
    "music": {
        "classical": {
            "subjects": "Johann Sebastian Bach; Handel; Mozart; Haydn; Beethoven; Schubert; Chopin; Liszt; Verdi; Wagner; Tchaikovsky; Stravinsky; the string quartet; the symphony",
            "parts": "fugue; oratorio; aria; minuet; sonata; lied; nocturne; étude; chorus; leitmotif; ballet score; rhythm; viola; orchestra",
            "acts": "worked as a cantor; wrote the piece for a royal celebration; toured Europe as a child; served a princely family for thirty years; continued to compose after losing his hearing; left the work unfinished; wrote almost only for the piano; dazzled audiences with virtuosity; composed the opera for Cairo; built a theatre for his dramas; wrote the music for a ballet about swans; caused a riot at the premiere; has four movements; is led by a conductor",
            "settings": "Leipzig; London; Salzburg; Vienna; Warsaw; Paris; Milan; Bayreuth; Saint Petersburg; the concert hall",
        },
        "popular songs": {
            "subjects": "the Beatles; the Rolling Stones; Bob Dylan; Elvis Presley; Johnny Cash; the country ballad; Motown; Aretha Franklin; Michael Jackson; Madonna; hip hop; a rap duo; the boy band; a pop single; the power ballad",
            "parts": "guitar riff; B-side; harmonica; rockabilly; steel guitar; refrain; bass line; gospel choir; music video; dance routine; sample; verse; vocal harmony; hook; key change",
            "acts": "topped the charts on both sides of the Atlantic; was recorded in a single afternoon; went electric at a folk festival; was inducted into the hall of fame; sang for prisoners; tells of a lost love; was produced in a converted house; won eighteen Grammy awards; sold more than sixty million copies; was certified platinum; grew out of block parties; was released as the second single from the album; broke up after ten years; was written by a team of Swedish producers; peaked at number three on the Billboard Hot 100",
            "settings": "Liverpool; London; Greenwich Village; Memphis; Nashville; Detroit; Los Angeles; New York; the Bronx; Stockholm",
        },
        "jazz and folk": {
            "subjects": "Louis Armstrong; Duke Ellington; Billie Holiday; Charlie Parker; Miles Davis; John Coltrane; the blues; Robert Johnson; bluegrass; the fiddle; the tango; flamenco; fado; reggae; Bob Marley",
            "parts": "cornet; big band; ballad; bebop line; trumpet; saxophone solo; twelve-bar form; slide; banjo; reel; bandoneon; heel work; lament; offbeat; drum pattern",
            "acts": "learned to play in an orphanage; led his orchestra for fifty years; sang behind the beat; changed harmony forever; recorded the album in two days; practised for hours each day; grew out of work songs; is said to have sold his soul at a crossroads; is played at great speed; is passed on by ear; was born in the poor quarters of the port; is accompanied by hand clapping; expresses longing; came from the dance halls of the island; brought the style to the world",
            "settings": "New Orleans; Harlem; Kansas City; the Mississippi Delta; Appalachia; Ireland; Buenos Aires; Andalusia; Lisbon; Kingston",
        },
        "instruments": {
            "subjects": "the violin; the cello; the classical guitar; the lute; the harpsichord; the piano; the pipe organ; the flute; the oboe; the clarinet; the French horn; the trumpet; the snare drum; the marimba; the synthesizer",
            "parts": "bow; spruce top; fret; gut string; plectrum; hammer; pedal board; mouthpiece; double reed; register key; bell; valve; drumhead; resonator; oscillator",
            "acts": "is tuned in fifths; has a range of four octaves; is held on the left leg; was fashionable at court; cannot play loud and soft; was invented in Florence around 1700; fills the church with sound; was made of wood until the nineteenth century; gives the orchestra its tuning note; has a dark low register; is coiled to save space; is used for fanfares; keeps the march in step; is struck with mallets; generates sound electronically",
            "settings": "Cremona; Spain; Renaissance courts; Baroque ensembles; the romantic orchestra; cathedrals; military bands; percussion ensembles; recording studios",
        },
    },
    "sport": {
        "football": {
            "subjects": "the FIFA World Cup; Brazil; Pelé; Diego Maradona; Manchester United; Real Madrid; FC Barcelona; the goalkeeper; the offside rule; the Super Bowl; the quarterback; the Green Bay Packers; the NFL draft; the wide receiver",
            "parts": "group stage; penalty; free kick; dribble; derby; transfer fee; midfield; clean sheet; referee; halftime show; touchdown pass; end zone; first-round pick; playbook",
            "acts": "is held every four years; has won the trophy five times; scored with his hand; led his country to the title; was promoted after a play-off; paid a record sum for the striker; won the league by nine points; saved two penalties in the shoot-out; was changed to favour the attack; is watched by a hundred million viewers; threw for three hundred yards; is owned by its fans; selects in reverse order of the standings; retired with the most receptions in history",
            "settings": "Rio de Janeiro; Naples; England; Madrid; Catalonia; the Premier League; the final in Berlin; Wisconsin; the National Football League; New Orleans",
        },
        "court and bat": {
            "subjects": "Michael Jordan; the Chicago Bulls; the Los Angeles Lakers; the three-point line; the NBA draft; Babe Ruth; the New York Yankees; the World Series; the pitcher; Test cricket; the Ashes; Wimbledon; Serena Williams; Roger Federer; badminton",
            "parts": "slam dunk; rebound; fast break; free throw; lottery pick; home run; bullpen; ninth inning; curveball; wicket; innings; grass court; backhand; tie-break; shuttlecock",
            "acts": "scored thirty points a game; won six championships in eight seasons; moved west in 1960; was introduced to spread the defence; is decided by a lottery; hit sixty home runs in a season; was sold to a rival; is played in October; threw a perfect game; may last for five days; is contested by England and Australia; is played on grass in white clothing; turned professional at fourteen; held the top ranking for three hundred weeks; is the most popular racket sport in Indonesia",
            "settings": "North Carolina; Chicago; the Western Conference; the playoffs; the Bronx; the American League; Lord's; London; Melbourne; the US Open",
        },
        "olympic sport": {
            "subjects": "the marathon; Usain Bolt; the pole vault; the decathlon; Michael Phelps; the butterfly stroke; artistic gymnastics; Nadia Comăneci; fencing; rowing; figure skating; alpine skiing; the biathlon; ski jumping; the Olympic flame",
            "parts": "starting block; false start; crossbar; javelin; relay; turn; balance beam; vault; épée; coxswain; triple axel; slalom gate; rifle; take-off; torch",
            "acts": "is run over forty-two kilometres; set a world record that still stands; cleared six metres; is contested over two days; won eight gold medals at one Games; was separated from breaststroke in 1952; received the first perfect ten; is scored electrically; crossed the line in under six minutes; is judged on technique and presentation; reached a speed of a hundred and forty kilometres per hour; combines skiing and shooting; is lit at Olympia",
            "settings": "Athens; Berlin; Jamaica; Beijing; Montreal; the Summer Olympics; Lillehammer; the Winter Olympics; Innsbruck; the opening ceremony",
        },
        "motor and combat sport": {
            "subjects": "Formula One; Ayrton Senna; Ferrari; the Indianapolis 500; NASCAR; the Tour de France; the peloton; Muhammad Ali; the heavyweight title; judo; sumo; professional wrestling; chess; Garry Kasparov",
            "parts": "pit stop; pole position; chicane; oval track; yellow jersey; mountain stage; time trial; jab; knockout; belt; throw; ring; opening; endgame",
            "acts": "won the constructors' championship; started from pole sixty-five times; crashed at the first corner; completes two hundred laps; was won by a margin of seconds; lasts for three weeks in July; shelters riders from the wind; refused to be drafted; was stopped in the eighth round; means the gentle way; is decided when a wrestler leaves the ring; follows a script; was solved for endings with seven pieces; lost to a computer in 1997",
            "settings": "Monaco; São Paulo; Monza; Indiana; Daytona; the French Alps; Kinshasa; Las Vegas; Tokyo; Moscow",
        },
    },
    "government": {
        "constitution": {
            "subjects": "the Supreme Court; the First Amendment; the Bill of Rights; the Electoral College; the House of Representatives; the Senate; the President of the United States; the filibuster; impeachment; the veto; the House of Lords; the prime minister; the German Bundestag; the European Parliament; the monarchy",
            "parts": "ruling; free speech clause; ratification; elector; district; committee; executive order; cloture; article; override; peer; cabinet; coalition; directive; royal assent",
            "acts": "has nine justices appointed for life; protects the freedom of the press; was ratified in 1791; awards votes by state; is elected every two years; confirms treaties and judges; commands the armed forces; can be ended by sixty votes; requires a majority of two thirds; was used more often in wartime; can delay a bill for a year; must keep the confidence of the house; is elected by proportional representation; shares power with the Council; has only ceremonial duties",
            "settings": "Washington; the states; Philadelphia; Congress; the Capitol; the White House; Westminster; Berlin; Strasbourg; the Commonwealth",
        },
        "law and economy": {
            "subjects": "the income tax; inflation; the Federal Reserve; the gold standard; the Great Depression; the minimum wage; Social Security; the trade union; the stock exchange; a limited company; the patent; copyright; the contract; criminal negligence; the jury",
            "parts": "bracket; price index; interest rate; reserve; unemployment; poverty line; pension; strike; share; director; invention; royalty; consideration; mens rea; verdict",
            "acts": "is withheld from wages; erodes savings; sets the discount rate; was abandoned in 1971; began with a crash on Wall Street; was raised to help low-paid workers; is financed by a payroll tax; bargains with employers; opened under a buttonwood tree; protects its owners from debts; expires after twenty years; lasts for seventy years after death; requires offer and acceptance; must be proved beyond reasonable doubt; consists of twelve citizens",
            "settings": "the United States; the central bank; Bretton Woods; New York; Britain; the welfare state; the London market; common law; civil law; the county court",
        },
        "religion and philosophy": {
            "subjects": "the Gospel of Matthew; the Book of Genesis; Paul the Apostle; the Catholic Church; Martin Luther; the Quran; Ramadan; Buddhism; the Bhagavad Gita; Confucius; Plato; Aristotle; Immanuel Kant; utilitarianism; existentialism",
            "parts": "parable; covenant; epistle; sacrament; thesis; surah; fast; noble truth; dharma; filial piety; dialogue; syllogism; imperative; happiness principle; absurdity",
            "acts": "was written in Greek; tells of the creation and the flood; preached to the gentiles; is governed from the Vatican; translated the Bible into German; is recited in Arabic; ends with a feast; teaches that suffering comes from desire; is set on the eve of a battle; taught respect for elders; distrusted the poets; classified the forms of argument; asked what reason can know; judges acts by their consequences; holds that existence precedes essence",
            "settings": "Galilee; Jerusalem; Rome; Wittenberg; Mecca; northern India; ancient China; Athens; Königsberg; Paris",
        },
    },
    "technology": {
        "computing": {
            "subjects": "the transistor; the microprocessor; Alan Turing; the UNIX operating system; the C language; Python; the relational database; the compiler; the Internet Protocol; the World Wide Web; the web browser; public-key cryptography; the smartphone; machine learning; the neural network",
            "parts": "silicon; register; halting problem; kernel; pointer; interpreter; query; syntax tree; packet; hyperlink; cache; private key; touch screen; training set; hidden layer",
            "acts": "replaced the vacuum tube; executes billions of instructions per second; broke the naval cipher; was rewritten in a portable language; lets the programmer manage memory; is known for readable code; stores rows in tables; translates source code into machine code; splits data into small packets; was proposed by a physicist; renders pages from markup; rests on the difficulty of factoring; is updated once a year; learns from examples; is trained by gradient descent",
            "settings": "Bell Labs; Silicon Valley; Bletchley Park; the university laboratory; open source projects; the data centre; Geneva; the server room; app stores; cloud services",
        },
        "transport": {
            "subjects": "the steam locomotive; the bullet train; the London Underground; the Titanic; the container ship; the Panama Canal; the bicycle; the Ford Model T; the electric car; the Wright brothers; the Boeing 747; Concorde; the helicopter; the Apollo programme; the space shuttle",
            "parts": "boiler; rail gauge; tunnel; hull; crane; lock gate; chain; assembly line; battery; propeller; fuselage; delta wing; rotor; lunar module; heat shield",
            "acts": "pulled coal wagons from the mine; runs at three hundred kilometres per hour; was the first of its kind; sank after striking an iceberg; cut the cost of freight; shortened the voyage by weeks; gave women new freedom; was sold in any colour so long as it was black; is charged overnight; stayed in the air for twelve seconds; carries four hundred passengers; crossed the ocean in three hours; can hover above a ship; landed two men on the Moon; flew one hundred and thirty-five missions",
            "settings": "northern England; Japan; London; the North Atlantic; Rotterdam; Central America; Detroit; North Carolina; Seattle; Cape Canaveral",
        },
        "buildings and machines": {
            "subjects": "the Eiffel Tower; the Empire State Building; the Golden Gate Bridge; the suspension bridge; reinforced concrete; the Roman arch; the Gothic cathedral; the Taj Mahal; the windmill; the water wheel; the steam engine; the steam turbine; the diesel engine; the nuclear reactor; the solar panel",
            "parts": "iron lattice; elevator; cable; anchorage; rebar; keystone; flying buttress; dome; sail; millrace; piston; blade; injector; control rod; wafer",
            "acts": "was built for a world's fair; rose four and a half floors a week; is painted all year round; hangs from steel cables; resists both tension and compression; carries its load to the sides; took a century to complete; was built as a tomb for a beloved wife; pumped water from the polders; drove hammers and looms; was improved by a separate condenser; drives a generator; ignites fuel by compression; splits uranium nuclei; turns sunlight into current",
            "settings": "Paris; Manhattan; San Francisco; the construction site; ancient Rome; northern France; Agra; the Netherlands; Birmingham; the power station",
        },
    },
    "entertainment": {
        "film": {
            "subjects": "Casablanca; Citizen Kane; The Godfather; Star Wars; Jaws; Alfred Hitchcock; Steven Spielberg; Walt Disney; The Lion King; Marilyn Monroe; Tom Hanks; Meryl Streep; the Academy Award; the western; the horror sequel",
            "parts": "screenplay; deep focus; mob family; special effect; mechanical shark; suspense; box office; cel animation; voice cast; leading lady; lead role; nomination; ceremony; gunfight; jump scare",
            "acts": "was shot on a studio lot; is told in flashbacks; was adapted from a bestselling novel; changed the summer season; went far over budget; appears briefly in his own pictures; directed the film after his first success; released the first full-length cartoon; was dubbed into forty languages; married a baseball player; won best actor in two successive years; has been nominated more than twenty times; is held in February; is set in a frontier town; received mixed reviews but earned ten times its cost",
            "settings": "Hollywood; the Warner studios; New York; Tunisia; Martha's Vineyard; the festival in Cannes; Burbank; the Dolby Theatre; Monument Valley; cinemas in North America",
        },
        "television": {
            "subjects": "The Simpsons; Friends; Seinfeld; the sitcom; Game of Thrones; The Walking Dead; Doctor Who; the soap opera; Grey's Anatomy; the season finale; American Idol; the talk show; The Voice; Saturday Night Live; the anime series",
            "parts": "couch gag; laugh track; apartment set; pilot; dragon; zombie; regeneration; love triangle; surgical intern; cliffhanger; judge; monologue; blind audition; sketch; voice actor",
            "acts": "premiered in December 1989; follows six friends; claims to be about nothing; was filmed before a live audience; is based on a series of fantasy novels; follows survivors of an apocalypse; travels in a police box; has run for more than fifty years; was renewed for a sixteenth season; was watched by twelve million viewers; was won by a waitress; is hosted by a comedian; returned for its fourteenth season; opens with a cold sketch; consists of two hundred episodes",
            "settings": "Springfield; Manhattan; NBC; HBO; Belfast; Atlanta; Cardiff; Seattle; ABC; Tokyo",
        },
        "literature and art": {
            "subjects": "William Shakespeare; Hamlet; Jane Austen; Charles Dickens; Mark Twain; The Great Gatsby; Harry Potter; the Iliad; Don Quixote; Leonardo da Vinci; the Mona Lisa; Michelangelo; Vincent van Gogh; Claude Monet; Pablo Picasso",
            "parts": "sonnet; soliloquy; marriage plot; serial; narrator; green light; school of magic; epic simile; chivalric romance; sketchbook; smile; ceiling fresco; brushstroke; water lily; cubist portrait",
            "acts": "wrote some thirty-nine plays; delays his revenge; was published anonymously; drew on his childhood in poverty; grew up beside a great river; ends with a death in a pool; was rejected by twelve publishers; opens with a quarrel over a captive; mocks the books of knights; left many works unfinished; was stolen in 1911; lay on scaffolding for four years; sold only one painting in his life; painted the same pond again and again; shocked the public with five nudes",
            "settings": "Stratford; Denmark; Hampshire; London; Missouri; Long Island; ancient Greece; La Mancha; Florence; Paris",
        },
    },
    "science": {
        "physics": {
            "subjects": "gravity; Isaac Newton; friction; the pendulum; thermodynamics; entropy; electromagnetism; Michael Faraday; light; the electron; the photon; Albert Einstein; special relativity; quantum mechanics; the Higgs boson",
            "parts": "acceleration; force; coefficient; period; heat; disorder; field; coil; wavelength; charge; energy level; clock; frame of reference; wave function; collision",
            "acts": "pulls all bodies alike; formulated three laws of motion; opposes the sliding of surfaces; depends only on length for small swings; forbids perpetual motion; never decreases in an isolated system; unites two older forces; discovered induction; travels at a constant speed in vacuum; orbits the nucleus in an older picture; carries momentum without mass; worked in a patent office; slows moving clocks; predicts only probabilities; was detected in 2012",
            "settings": "Cambridge; the laboratory; an inclined plane; the heat engine; the Royal Institution; a vacuum; the atom; Bern; Copenhagen; CERN",
        },
        "chemistry": {
            "subjects": "hydrogen; oxygen; carbon; water; carbon dioxide; sodium chloride; sulfuric acid; ammonia; iron; copper; gold; mercury; the periodic table; the covalent bond; the catalyst; polyethylene",
            "parts": "isotope; flame; allotrope; melting point; greenhouse effect; crystal; pH; fertiliser; rust; alloy; nugget; vapour; group; electron pair; reaction rate; monomer",
            "acts": "is the lightest element; supports combustion; forms four bonds; expands when it freezes; traps heat in the atmosphere; dissolves readily; is the most produced industrial chemical; is made from nitrogen under pressure; corrodes in moist air; conducts electricity well; does not tarnish; is liquid at room temperature; was arranged by atomic weight; shares two electrons; lowers the activation energy; is used for bags and bottles",
            "settings": "the Sun; air; diamond and graphite; oceans; the blast furnace; salt mines; the Haber process; jewellery; Saint Petersburg; the oil refinery",
        },
        "astronomy and earth": {
            "subjects": "the Sun; Mercury; Venus; Mars; Jupiter; Saturn; the Moon; Halley's Comet; the Milky Way; a black hole; a supernova; the Big Bang; the tectonic plate; an earthquake; limestone; the fossil record",
            "parts": "corona; crater; cloud layer; polar cap; red spot; ring; tide; tail; spiral arm; event horizon; neutron star; background radiation; fault; epicentre; sediment; trilobite",
            "acts": "fuses hydrogen to helium; circles in eighty-eight days; rotates backwards; may once have had rivers; is more massive than all other planets; could float on water; always shows the same face; returns every seventy-six years; contains some two hundred billion stars; bends light around itself; outshines its galaxy for weeks; began some fourteen billion years ago; moves a few centimetres a year; was felt hundreds of miles away; forms from shells; shows five mass extinctions",
            "settings": "the solar system; the inner planets; the asteroid belt; the outer planets; the night sky; the galactic centre; the early universe; the San Andreas fault; the ocean floor; the Cambrian",
        },
        "mathematics": {
            "subjects": "Pythagoras's theorem; Euclid; pi; the prime number; zero; algebra; the logarithm; calculus; Leonhard Euler; Carl Friedrich Gauss; the normal distribution; the median; linear algebra; graph theory; game theory",
            "parts": "hypotenuse; axiom; circumference; divisor; place value; equation; exponent; derivative; series; least squares; standard deviation; outlier; matrix; edge; equilibrium",
            "acts": "holds for right triangles only; proved that there are infinitely many primes; cannot be written as a fraction; has exactly two divisors; came to Europe with Arabic numerals; takes its name from a book; turns products into sums; was found independently by two men; published eight hundred papers; could add before he could write; has the shape of a bell; is not moved by extreme values; describes rotations; began with seven bridges; explains why rivals may both lose",
            "settings": "ancient Greece; Alexandria; Baghdad; India; Göttingen; Basel; statistics; geometry; economics; number theory",
        },
    },
    "health": {
        "anatomy": {
            "subjects": "the heart; the aorta; the lung; the liver; the kidney; the stomach; the small intestine; the brain; the cerebellum; the spinal cord; the femur; the knee; the skin; the retina; the inner ear",
            "parts": "ventricle; valve; alveolus; bile; nephron; gastric acid; villus; cortex; neuron; vertebra; marrow; ligament; epidermis; rod cell; cochlea",
            "acts": "beats about a hundred thousand times a day; carries blood from the left ventricle; exchanges gases; breaks down toxins; filters the blood; secretes acid; absorbs nutrients; consumes a fifth of the body's energy; coordinates movement; carries signals to the limbs; is the longest bone; bears the weight of the body; is the largest organ; turns light into nerve signals; keeps the balance",
            "settings": "the chest; the circulatory system; the abdomen; the digestive tract; the skull; the central nervous system; the leg; the eye; the temporal bone",
        },
        "diseases and medicine": {
            "subjects": "influenza; measles; smallpox; tuberculosis; malaria; cholera; type 2 diabetes; high blood pressure; stroke; breast cancer; asthma; depression; penicillin; aspirin; the vaccine; anaesthesia",
            "parts": "fever; rash; scar; cough; parasite; contaminated water; blood sugar; artery; clot; tumour; inhaler; mood; mould; tablet; antibody; ether",
            "acts": "returns each winter; spreads through the air; was eradicated in 1980; is treated for six months with several drugs; is carried by mosquitoes; was traced to a water pump; is linked to obesity; often has no symptoms; needs treatment within hours; is found by screening; narrows the airways; affects one in ten people; was discovered by accident; reduces pain and fever; prepares the immune system; made long operations possible",
            "settings": "crowded cities; childhood; Africa; London; the tropics; primary care; the emergency room; the clinic; the hospital ward; the trial",
        },
        "food and cooking": {
            "subjects": "bread; pasta; pizza; cheese; butter; wine; beer; tea; coffee; chocolate; curry; sushi; the taco; the hamburger; apple pie; ice cream",
            "parts": "crust; dough; mozzarella; rind; cream; grape; hops; leaf; bean; cocoa; spice; vinegared rice; tortilla; bun; cinnamon; vanilla",
            "acts": "rises before it is baked; is boiled in salted water; is baked in a very hot oven; ripens in caves; is churned from cream; is aged in oak barrels; is brewed with malt; was taxed by the crown; is roasted before grinding; was drunk bitter by the Aztecs; is simmered with turmeric and cumin; is served with ginger; is filled with grilled meat; was first sold at a county fair; is served with custard; is churned while freezing",
            "settings": "France; Italy; Naples; the Alps; Bordeaux; Bavaria; Ceylon; Ethiopia; Japan; Mexico; the United States",
        },
    },
}

KINDS = {  # what the things of a domain are called in general
    "geography": "region; area; landmark; feature; place",
    "biology": "species; organism; group; structure; kind",
    "history": "power; period; figure; movement; event",
    "music": "tradition; style; repertoire; name; form",
    "sport": "competition; side; athlete; discipline; title",
    "government": "institution; principle; doctrine; office; rule",
    "technology": "invention; system; design; machine; standard",
    "entertainment": "work; production; title; classic; name",
    "science": "concept; quantity; discovery; substance; idea",
    "health": "condition; organ; subject; product; part",
}
