"""What the generated e-mails are about: per matter its topics, acts, requests and papers, neighbours belonging together."""

from __future__ import annotations

MATTERS: dict[str, dict[str, str]] = {
    "trading": {
        "topics": "the gas curve; basis positions; the spot price at Henry Hub; storage withdrawals; power prices in California; the heat rate; transmission congestion; the options book; the crude spread; value at risk",
        "acts": "went short before the close; rolled the June position; booked the deal in the wrong portfolio; lifted the offer; is long the winter strip; flattened the book; marked the curve down",
        "requests": "confirm the volumes for tomorrow; send me the position report; check the deal ticket; call the desk before noon; update the curve; get credit approval first",
        "papers": "the deal ticket; the position report; the daily P&L; the curve file; the confirmation",
    },
    "contracts": {
        "topics": "the master agreement; the ISDA schedule; the indemnity clause; the guaranty; the non-disclosure agreement; the assignment; governing law; the termination right; the amendment; the closing",
        "acts": "sent a redline; will not accept the limitation of liability; signed two originals; wants a parent guaranty; deleted the arbitration clause; asked for a waiver; returned the draft with comments",
        "requests": "review the attached draft; sign and return both copies; send your comments; call opposing counsel; circulate the execution version; initial each page",
        "papers": "the redline; the signature page; the letter agreement; the term sheet; the opinion letter",
    },
    "meetings": {
        "topics": "the staff meeting; the conference call; the offsite; the quarterly review; the presentation; the agenda; the kickoff; the board meeting; the video conference",
        "acts": "moved the meeting; cannot make it; will dial in late; has booked the room on the thirtieth floor; added two items to the agenda; will present the slides",
        "requests": "let me know if that time works; bring the slides; forward this to your group; reserve a room; send me three dates; confirm attendance",
        "papers": "the agenda; the slides; the minutes; the calendar invitation; the dial-in details",
    },
    "lunch": {
        "topics": "lunch today; the sandwich order; lunch for the training; the birthday cake; the team dinner; the catering; Friday breakfast; the taco bar",
        "acts": "is collecting the money; will pick up the food; ordered too much last time; is allergic to peanuts; prefers the vegetarian option; owes me for last week",
        "requests": "tell me what you want by eleven; bring cash; let me know who is coming; order from the usual place; pick a restaurant; add your name to the list",
        "papers": "the menu; the order list; the receipt",
    },
    "personnel": {
        "topics": "the performance review; the analyst programme; the offer letter; vacation days; the bonus; the reorganization; the open position; the resume; the benefits enrollment; the job rotation",
        "acts": "accepted our offer; will join the group; is moving to the London office; interviewed very well; has resigned; asked for a transfer; was promoted to vice president",
        "requests": "complete your self-evaluation; send feedback by Friday; keep this confidential; schedule the interviews; approve the vacation; forward the resume",
        "papers": "the resume; the offer letter; the evaluation form; the organization chart; the expense policy",
    },
    "regulation": {
        "topics": "the FERC order; the rate case; the hearing; the price cap; the refund proceeding; the tariff filing; the independent system operator; the governor's plan; the comment period; the subpoena",
        "acts": "issued a ruling; filed a protest; will testify; opposes direct access; extended the deadline; wants a cap on wholesale prices; asked for a rehearing",
        "requests": "review the testimony; send talking points; preserve all documents; respond to the data request; call the lobbyist; prepare a summary",
        "papers": "the filing; the testimony; the order; the press release; the talking points",
    },
    "accounting": {
        "topics": "the invoice; the wire transfer; the quarterly close; the accrual; the tax return; the budget; the write-off; the expense report; the audit; the letter of credit",
        "acts": "has not paid; sent the wire this morning; disputed the charge; closed the books; found an error in the ledger; approved the budget; is over budget",
        "requests": "wire the funds today; code this to the right cost center; send the backup; approve the invoice; reconcile the balance; reimburse me",
        "papers": "the invoice; the spreadsheet; the ledger; the bank statement; the expense report",
    },
    "systems": {
        "topics": "the server outage; my password; the new laptop; the database; the upgrade; remote access; the printer; the network drive; the report that fails; the virus warning",
        "acts": "is down again; was restored from backup; locked me out; will be migrated over the weekend; lost the connection; is running very slowly; crashed twice",
        "requests": "reset my password; open a ticket; save your files; log off before six; install the patch; test the new screen",
        "papers": "the error message; the log file; the request form; the user list",
    },
    "travel": {
        "topics": "the flight; the hotel; the rental car; the visa; the itinerary; the trip to Houston; the London visit; the site visit; the conference in New York",
        "acts": "lands at six; missed the connection; is staying at the Hyatt; booked an aisle seat; needs a new passport; will take a cab from the airport",
        "requests": "book the hotel; change my flight; send me the itinerary; meet me in the lobby; cancel the car; get directions",
        "papers": "the itinerary; the ticket; the map; the hotel confirmation",
    },
    "private": {
        "topics": "the weekend; the kids; the football game; the house; the wedding; the golf tournament; the baby; the fantasy league; the ranch; the holidays",
        "acts": "had a great time; is having a boy; sold the house; won the pool; caught a terrible cold; is getting married; misses you; hurt his knee",
        "requests": "give me a call tonight; come over on Saturday; send pictures; say hello to everyone; save me two tickets; call your mother",
        "papers": "the pictures; the tickets; the address; the recipe",
    },
}

DISHES = "turkey on wheat; chicken Caesar salad; roast beef on rye; beef fajitas; cheese enchiladas; ham and Swiss; a veggie wrap; tuna melt; pepperoni pizza; pad thai; a gyro plate; club sandwich; clam chowder; tortilla soup; a bacon cheeseburger; sushi rolls"
SIDES = "no mayo; extra pickles; chips; a Diet Coke; iced tea; no onions; fries; dressing on the side; a brownie; hot salsa"
