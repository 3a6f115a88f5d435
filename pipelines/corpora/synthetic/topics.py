"""What the generated tweets talk about: for each TweetTopic label its things, moods, doings and tags, neighbours belonging together."""

from __future__ import annotations

# label -> {things, doings, views, tags}; items divided by "; "
LEXICON: dict[str, dict[str, str]] = {
    "news_&_social_concern": {
        "things": "the vaccine mandate; the hospital strike; the senate vote; the new immigration bill; the climate summit; the wildfire smoke; the flood relief fund; the police hearing; the protest downtown; rising rents; food banks; the school board meeting",
        "doings": "waiting for the health minister to answer; reading the court ruling line by line; watching the vote count; calling my representative; signing the petition; donating to the relief fund; marching tomorrow; asking who pays for this",
        "views": "people will die while they debate; this is a human rights issue; accountability starts at the top; nobody in power is listening; voters will remember; we need facts, not fear; the numbers do not lie; communities are hurting",
        "tags": "#BreakingNews; #ClimateAction; #Vote; #Justice; #HumanRights",
    },
    "sports": {
        "things": "the penalty shoot-out; that last minute goal; our back four; the transfer window; the playoffs; game seven; the quarterback; that buzzer beater; the bullpen; the home run record; the title fight; the Grand Slam final",
        "doings": "watching the derby with the whole pub; screaming at the referee; refreshing the live score; driving to the away game; checking the injury report; betting on the underdog; rewatching the winning drive; staying up for extra innings",
        "views": "best defence in the league; the coach has to go; what a comeback; worst call of the season; this team never quits; give him the MVP already; we go again next week; pure heart tonight",
        "tags": "#GameDay; #NBA; #PremierLeague; #NFL; #MLB",
    },
    "music": {
        "things": "the new single; that bridge; the album rollout; this guitar solo; her vocals; the remix; the vinyl reissue; the drum fill; the setlist; front row tickets; the festival lineup; the bass drop",
        "doings": "streaming the album on repeat; learning the chords; crying to track five; queueing for the concert; making a playlist; practising scales; screaming the chorus in the car; waiting for the tour dates",
        "views": "song of the summer; no skips; the production is insane; live vocals are unreal; that melody lives in my head; album of the year; she ate that verse; goosebumps every time",
        "tags": "#NowPlaying; #NewMusic; #ConcertNight; #Vinyl; #kpop",
    },
    "film_tv_&_video": {
        "things": "the season finale; the trailer; that plot twist; the villain; the reboot; episode six; the director's cut; the post-credits scene; the documentary; the casting news; the box office; the animation",
        "doings": "bingeing the whole season; rewatching the trailer frame by frame; avoiding spoilers; queueing for the premiere; crying at the ending; arguing about the casting; starting the show from the beginning; editing my video essay",
        "views": "the acting was flawless; the writing fell apart; cinematography on another level; nobody asked for a sequel; they deserved better; ten out of ten; the soundtrack carried it; cancelled too soon",
        "tags": "#Netflix; #MovieNight; #TheBoys; #Oscars; #Anime",
    },
    "celebrity_&_pop_culture": {
        "things": "the red carpet; her interview; the breakup rumour; the fan meeting; the magazine cover; his apology video; the award speech; the comeback stage; the paparazzi photos; the wedding pictures; the feud; the birthday project",
        "doings": "zooming in on the photos; voting for my favourite; reading the comments; trending worldwide again; waiting for the livestream; defending her name; making fan edits; counting down to the comeback",
        "views": "icon behaviour; leave her alone; the internet is losing it; our king is glowing; the fandom won today; who styled him; queen of everything; we stan forever",
        "tags": "#MetGala; #BTS; #Grammys; #StanTwitter; #Icon",
    },
    "diaries_&_daily_life": {
        "things": "my alarm; the laundry pile; this Monday; the neighbour's dog; my commute; the rain; a nap; the last cup of coffee; my messy room; the broken heater; the quiet evening; my to-do list",
        "doings": "lying in bed scrolling; missing the bus again; cleaning the kitchen at midnight; drinking tea on the balcony; talking to my plants; pretending to work; walking home in the rain; trying to sleep",
        "views": "adulting is hard; small joys matter; I am so tired; today was actually nice; why am I like this; send help; grateful for slow mornings; not my best day",
        "tags": "#MondayMood; #Blessed; #MorningThoughts; #SelfCare; #Rain",
    },
    "arts_&_culture": {
        "things": "the exhibition; my watercolour; this mural; a museum ticket; the ballet; the poetry reading; the sketchbook; the sculpture garden; the novel; the gallery opening; the theatre; the printmaking class",
        "doings": "painting until the light is gone; reading poems aloud; sketching strangers on the train; framing the print; wandering through the museum; finishing the commission; rehearsing the play; writing the last chapter",
        "views": "colour is a language; what a use of light; art saves lives; such delicate brushwork; a masterpiece of restraint; so moving in person; culture belongs to everyone; every line sings",
        "tags": "#ArtistOnTwitter; #Museum; #Poetry; #Illustration; #Theatre",
    },
    "business_&_entrepreneurs": {
        "things": "the quarterly earnings; our seed round; the stock split; my side hustle; the token launch; the pitch deck; customer feedback; the supply chain; cash flow; the merger; the job market; the interest rate",
        "doings": "closing the investor call; hiring two engineers; shipping the first orders; buying the dip; rewriting the business plan; networking at the summit; cutting costs; talking to customers",
        "views": "revenue beats hype; build in public; cash is king; long term vision wins; the margin is too thin; know your customer; the market will decide; founders need sleep too",
        "tags": "#Startup; #SmallBusiness; #Crypto; #Leadership; #Marketing",
    },
    "family": {
        "things": "my daughter; my little brother; grandma's kitchen; the new baby; dad's jokes; mum's birthday; bedtime stories; the family reunion; my nephew; the twins; our anniversary; my son's first steps",
        "doings": "tucking the kids in; calling mum; baking with my grandmother; looking at old family photos; building a treehouse; carrying a sleeping toddler; celebrating as a family; visiting my parents",
        "views": "parenting is a wild ride; home is where they are; so proud of this kid; I miss her every day; siblings for life; they grow up so fast; my heart is full; best dad ever",
        "tags": "#MomLife; #FathersDay; #Family; #NewBaby; #Grandparents",
    },
    "fashion_&_style": {
        "things": "the autumn collection; these boots; a vintage jacket; her gown; the runway; my nails; that eyeliner; the sneaker drop; a linen suit; the thrift haul; the lipstick shade; a leather bag",
        "doings": "trying on everything; thrifting with friends; planning outfits; doing my makeup; sewing a hem; waiting for the drop; steaming the dress; dyeing my hair",
        "views": "the fit is perfect; the silhouette is everything; that fabric though; a look; wear what you love; colour of the season; tailoring matters; so chic",
        "tags": "#OOTD; #Fashion; #StreetStyle; #Makeup; #Sneakers",
    },
    "fitness_&_health": {
        "things": "leg day; my morning run; the squat rack; a protein shake; the half marathon; my step count; yoga class; therapy; my sleep score; the physio; blood pressure; a rest day",
        "doings": "hitting a deadlift record; stretching before bed; running before sunrise; counting calories; meditating for ten minutes; recovering from surgery; drinking more water; booking the check-up",
        "views": "progress, not perfection; listen to your body; consistency beats talent; mental health matters; no excuses; rest is training too; my lungs are burning; stronger every week",
        "tags": "#FitFam; #RunClub; #GymLife; #MentalHealth; #Yoga",
    },
    "food_&_dining": {
        "things": "tacos; ramen; sourdough; the cheesecake; a burger with extra cheese; fried chicken; iced coffee; the brunch menu; mango curry; pizza night; the farmers market; pumpkin soup",
        "doings": "waiting for a table; frying garlic and onions; burning the toast; trying the new place; ordering dessert first; grilling in the garden; kneading dough; licking the plate",
        "views": "so crispy; pure comfort; too spicy for me; worth every calorie; the sauce is everything; fresh from the oven; best meal this year; pineapple belongs there",
        "tags": "#Foodie; #Brunch; #HomeCooking; #CoffeeTime; #Vegan",
    },
    "gaming": {
        "things": "the boss fight; the patch notes; ranked; my squad; the console restock; the speedrun; the loot box; a legendary skin; the open world; the lag; the stream; the new expansion",
        "doings": "grinding levels; losing to a ten year old; streaming tonight; pre-ordering the remake; building a castle in Minecraft; farming gold; respawning forever; unlocking the secret ending",
        "views": "nerf this weapon; game of the year; the servers are down again; one more round; the graphics are unreal; skill issue; so many bugs; easy win",
        "tags": "#Twitch; #PS5; #Xbox; #GenshinImpact; #Esports",
    },
    "learning_&_educational": {
        "things": "the lecture; my thesis; a free course; this book on statistics; the reading list; the webinar; language practice; the maths worksheet; the workshop; my classroom; the scholarship; a study guide",
        "doings": "taking notes; grading essays; learning Spanish verbs; teaching fractions; reading about the Romans; registering for the workshop; explaining photosynthesis; revising chapter nine",
        "views": "never stop learning; teachers deserve more; such a clear explanation; knowledge is power; today I learned; curiosity first; every child can read; great resource",
        "tags": "#EdChat; #PhDLife; #Teachers; #Reading; #STEM",
    },
    "other_hobbies": {
        "things": "my succulents; the yarn stash; a model train; the jigsaw puzzle; the bird feeder; my camera lens; the fishing rod; trading cards; the telescope; a dollhouse; the board game; my bonsai",
        "doings": "knitting a scarf; repotting the ferns; photographing the moon; painting miniatures; waiting for a kingfisher; sorting my cards; restoring an old radio; tying flies",
        "views": "cheaper than therapy; so relaxing; patience pays off; my new obsession; one more for the collection; it took forty hours; nature is generous; beginners welcome",
        "tags": "#Gardening; #Knitting; #Photography; #Birdwatching; #PokemonTCG",
    },
    "relationships": {
        "things": "my best friend; my ex; the first date; a good morning text; trust; the group chat; my girlfriend; long distance; the proposal; a real apology; true friends; my crush",
        "doings": "falling in love again; leaving him on read; holding hands; overthinking the message; forgiving but not forgetting; saying I love you; walking away; laughing together until late",
        "views": "you deserve someone who stays; communication is everything; love is patient; red flag; loyalty over everything; my heart cannot take this; best friends forever; know your worth",
        "tags": "#Love; #Dating; #Friendship; #Heartbreak; #CoupleGoals",
    },
    "science_&_technology": {
        "things": "the rocket launch; this telescope image; the new chip; a language model; the security patch; quantum computers; the battery; open source code; the asteroid; gene editing; the software update; a robot arm",
        "doings": "watching the booster land; training a neural network; debugging at midnight; reading the preprint; rebooting the router; sequencing the genome; benchmarking the GPU; writing unit tests",
        "views": "the future is weird; peer review matters; it works on my machine; the data is beautiful; privacy is not optional; space is hard; science is teamwork; what a time to be alive",
        "tags": "#NASA; #AI; #CyberSecurity; #OpenSource; #Biotech",
    },
    "travel_&_adventure": {
        "things": "the night train; my passport; the beach; the mountain hut; a window seat; the old harbour; the road trip; the tent; the sunset; airport coffee; the hidden waterfall; the island ferry",
        "doings": "packing light; hiking to the ridge; getting lost in the old town; watching the sun go down; waiting at the gate; swimming in the bay; camping under the stars; taking the scenic route",
        "views": "take me back; what a view; worth the climb; wanderlust is real; the locals were so kind; nature heals; best trip of my life; adventure awaits",
        "tags": "#Wanderlust; #Travel; #Hiking; #RoadTrip; #Beach",
    },
    "youth_&_student_life": {
        "things": "finals week; my roommate; the dorm; the group project; prom; the exam; graduation; homework; the campus library; orientation; my locker; student loans",
        "doings": "pulling an all-nighter; cramming for chemistry; skipping the first lecture; moving into the dorm; eating instant noodles; asking for an extension; choosing a major; graduating at last",
        "views": "college is a scam; I have an exam tomorrow; we made it; send coffee; my professor hates me; class of the year; senior year hits different; freshmen, take notes",
        "tags": "#FinalsWeek; #Classof2025; #CollegeLife; #BackToSchool; #Student",
    },
}

# which labels go together, by how often: the second label of a tweet is drawn from these
AFFINITY: dict[str, tuple[str, ...]] = {
    "news_&_social_concern": (
        "fitness_&_health",
        "business_&_entrepreneurs",
        "science_&_technology",
        "learning_&_educational",
    ),
    "sports": ("celebrity_&_pop_culture", "news_&_social_concern", "fitness_&_health", "gaming"),
    "music": ("celebrity_&_pop_culture", "arts_&_culture", "film_tv_&_video", "diaries_&_daily_life"),
    "film_tv_&_video": ("celebrity_&_pop_culture", "arts_&_culture", "music", "gaming"),
    "celebrity_&_pop_culture": ("music", "film_tv_&_video", "fashion_&_style", "relationships"),
    "diaries_&_daily_life": ("relationships", "family", "food_&_dining", "youth_&_student_life"),
    "arts_&_culture": ("learning_&_educational", "other_hobbies", "film_tv_&_video", "travel_&_adventure"),
    "business_&_entrepreneurs": (
        "science_&_technology",
        "news_&_social_concern",
        "learning_&_educational",
        "fashion_&_style",
    ),
    "family": ("diaries_&_daily_life", "relationships", "food_&_dining", "youth_&_student_life"),
    "fashion_&_style": (
        "celebrity_&_pop_culture",
        "business_&_entrepreneurs",
        "arts_&_culture",
        "diaries_&_daily_life",
    ),
    "fitness_&_health": ("diaries_&_daily_life", "sports", "news_&_social_concern", "food_&_dining"),
    "food_&_dining": ("diaries_&_daily_life", "travel_&_adventure", "family", "fitness_&_health"),
    "gaming": ("science_&_technology", "other_hobbies", "film_tv_&_video", "youth_&_student_life"),
    "learning_&_educational": (
        "youth_&_student_life",
        "science_&_technology",
        "arts_&_culture",
        "business_&_entrepreneurs",
    ),
    "other_hobbies": ("arts_&_culture", "diaries_&_daily_life", "travel_&_adventure", "gaming"),
    "relationships": ("diaries_&_daily_life", "family", "youth_&_student_life", "celebrity_&_pop_culture"),
    "science_&_technology": (
        "business_&_entrepreneurs",
        "learning_&_educational",
        "gaming",
        "news_&_social_concern",
    ),
    "travel_&_adventure": ("diaries_&_daily_life", "food_&_dining", "other_hobbies", "arts_&_culture"),
    "youth_&_student_life": ("learning_&_educational", "diaries_&_daily_life", "relationships", "sports"),
}
