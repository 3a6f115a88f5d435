"""What the generated clinical notes are about: per specialty its conditions, symptoms, findings, drugs and procedures.

Every list runs from one end of its specialty to the other: neighbours belong together. 170 conditions in all.
"""

from __future__ import annotations

SPECIALTIES: dict[str, dict[str, str]] = {
    "cardiology": {
        "conditions": "hypertension; coronary artery disease; angina pectoris; myocardial infarction; congestive heart failure; cardiomyopathy; atrial fibrillation; ventricular tachycardia; bradycardia; aortic stenosis; mitral regurgitation; pericarditis; endocarditis; hyperlipidemia",
        "symptoms": "headache; chest pressure on exertion; pain radiating to the left arm; shortness of breath; swelling of both ankles; palpitations; lightheadedness; syncope; a sharp chest pain that eases on leaning forward",
        "findings": "blood pressure above goal; ST segment depression; elevated troponin; a reduced ejection fraction; an irregularly irregular rhythm; a systolic murmur at the right upper sternal border; a friction rub; an elevated LDL",
        "drugs": "lisinopril; aspirin; nitroglycerin; metoprolol; furosemide; spironolactone; apixaban; amiodarone; atorvastatin",
        "procedures": "cardiac catheterization; stent placement; echocardiogram; cardioversion; pacemaker placement; valve replacement",
    },
    "pulmonology": {
        "conditions": "asthma; chronic obstructive pulmonary disease; emphysema; chronic bronchitis; pneumonia; pleural effusion; pneumothorax; pulmonary embolism; pulmonary fibrosis; obstructive sleep apnea; sarcoidosis; respiratory failure",
        "symptoms": "wheezing at night; a chronic cough with sputum; fever with productive cough; pleuritic chest pain; sudden breathlessness; dry cough; loud snoring; daytime sleepiness",
        "findings": "prolonged expiration; hyperinflated lungs; a right lower lobe infiltrate; decreased breath sounds at the base; a filling defect on CT angiogram; fine crackles; low oxygen saturation",
        "drugs": "albuterol; fluticasone; tiotropium; prednisone; azithromycin; ceftriaxone; heparin; nintedanib",
        "procedures": "spirometry; bronchoscopy; thoracentesis; chest tube placement; a sleep study; intubation",
    },
    "gastroenterology": {
        "conditions": "gastroesophageal reflux disease; hiatal hernia; peptic ulcer disease; gastritis; cholelithiasis; cholecystitis; pancreatitis; cirrhosis; hepatitis C; fatty liver disease; Crohn's disease; ulcerative colitis; diverticulitis; colon polyps; irritable bowel syndrome; hemorrhoids",
        "symptoms": "heartburn after meals; epigastric burning; right upper quadrant pain; nausea and vomiting; increasing abdominal girth; bloody diarrhea; left lower quadrant cramping; painless rectal bleeding",
        "findings": "a small sliding hernia; gastric erosions; gallstones without ductal dilatation; an elevated lipase; ascites; inflamed terminal ileum; sigmoid wall thickening; a sessile polyp",
        "drugs": "omeprazole; sucralfate; ursodiol; lactulose; mesalamine; infliximab; metronidazole; psyllium",
        "procedures": "upper endoscopy; cholecystectomy; paracentesis; liver biopsy; colonoscopy; polypectomy",
    },
    "endocrinology": {
        "conditions": "type 2 diabetes mellitus; type 1 diabetes mellitus; diabetic ketoacidosis; obesity; hypothyroidism; hyperthyroidism; thyroid nodule; Cushing syndrome; adrenal insufficiency; hyperparathyroidism; osteoporosis; vitamin D deficiency",
        "symptoms": "polyuria and thirst; weight gain; cold intolerance; tremor and heat intolerance; a lump in the neck; easy bruising; fatigue and salt craving; bone pain",
        "findings": "a hemoglobin A1c of nine percent; ketones in the urine; a raised TSH; a suppressed TSH; a hypoechoic nodule; purple striae; a low morning cortisol; a raised calcium; a T-score below minus 2.5",
        "drugs": "metformin; insulin glargine; semaglutide; levothyroxine; methimazole; hydrocortisone; alendronate; cholecalciferol",
        "procedures": "diabetic foot examination; fine needle aspiration; thyroidectomy; dexamethasone suppression test; bone density scan",
    },
    "neurology": {
        "conditions": "migraine; tension headache; epilepsy; ischemic stroke; transient ischemic attack; subarachnoid hemorrhage; multiple sclerosis; Parkinson's disease; Alzheimer's dementia; peripheral neuropathy; carpal tunnel syndrome; Bell's palsy; essential tremor",
        "symptoms": "throbbing one-sided headache; a witnessed seizure; sudden left-sided weakness; slurred speech; double vision; a resting tremor; progressive memory loss; numbness in both feet; tingling of the thumb at night; facial droop",
        "findings": "photophobia; epileptiform discharges; a middle cerebral artery infarct; xanthochromia; periventricular white matter lesions; cogwheel rigidity; impaired recall; absent ankle reflexes; a positive Phalen sign",
        "drugs": "sumatriptan; levetiracetam; clopidogrel; nimodipine; ocrelizumab; carbidopa-levodopa; donepezil; gabapentin; propranolol",
        "procedures": "electroencephalogram; thrombolysis; lumbar puncture; MRI of the brain; nerve conduction study; carpal tunnel release",
    },
    "orthopedics": {
        "conditions": "osteoarthritis of the knee; meniscal tear; anterior cruciate ligament rupture; hip fracture; lumbar disc herniation; spinal stenosis; rotator cuff tear; adhesive capsulitis; lateral epicondylitis; distal radius fracture; ankle sprain; plantar fasciitis",
        "symptoms": "knee pain on stairs; locking of the knee; giving way; inability to bear weight; low back pain shooting down the leg; shoulder pain overhead; elbow pain when gripping; wrist pain after a fall; heel pain in the morning",
        "findings": "joint space narrowing; a positive McMurray test; a positive Lachman test; a shortened externally rotated leg; a positive straight leg raise; weak abduction; tenderness over the epicondyle; a dinner fork deformity",
        "drugs": "acetaminophen; ibuprofen; celecoxib; oxycodone; cyclobenzaprine; a corticosteroid injection; topical diclofenac",
        "procedures": "total knee arthroplasty; arthroscopy; open reduction and internal fixation; lumbar discectomy; rotator cuff repair; casting",
    },
    "nephrology and urology": {
        "conditions": "chronic kidney disease; acute kidney injury; nephrotic syndrome; hyperkalemia; hyponatremia; kidney stones; hydronephrosis; urinary tract infection; pyelonephritis; urinary incontinence; benign prostatic hyperplasia; prostate cancer; erectile dysfunction",
        "symptoms": "reduced urine output; foamy urine; muscle weakness; flank pain radiating to the groin; burning on urination; fever with chills; leakage on coughing; a weak urinary stream; nocturia",
        "findings": "a creatinine of 3.2; heavy proteinuria; peaked T waves; a stone in the distal ureter; pyuria; costovertebral angle tenderness; an enlarged smooth prostate; a rising PSA",
        "drugs": "losartan; sevelamer; calcium gluconate; tamsulosin; nitrofurantoin; ciprofloxacin; oxybutynin; finasteride; leuprolide",
        "procedures": "hemodialysis; renal biopsy; lithotripsy; ureteral stent placement; cystoscopy; prostatectomy",
    },
    "psychiatry": {
        "conditions": "major depressive disorder; dysthymia; generalized anxiety disorder; panic disorder; post-traumatic stress disorder; obsessive-compulsive disorder; bipolar disorder; schizophrenia; insomnia; alcohol dependence; opioid use disorder; attention deficit disorder",
        "symptoms": "low mood; loss of interest; constant worry; sudden attacks of fear; nightmares; intrusive thoughts; racing thoughts; hearing voices; difficulty falling asleep; craving; restlessness",
        "findings": "a flat affect; psychomotor slowing; a tense posture; hypervigilance; pressured speech; paranoid ideation; a tremor of withdrawal; impaired attention",
        "drugs": "sertraline; bupropion; buspirone; clonazepam; prazosin; lithium; olanzapine; trazodone; naltrexone; buprenorphine; methylphenidate",
        "procedures": "cognitive behavioral therapy; electroconvulsive therapy; group therapy; a safety plan; detoxification",
    },
    "infectious disease": {
        "conditions": "cellulitis; abscess; osteomyelitis; sepsis; bacteremia; meningitis; HIV infection; tuberculosis; influenza; COVID-19; Lyme disease; shingles; Clostridium difficile colitis",
        "symptoms": "redness and warmth of the leg; drainage from a wound; fever and rigors; stiff neck; weight loss; night sweats; body aches; loss of smell; an expanding rash; burning pain in a band; watery diarrhea",
        "findings": "spreading erythema; fluctuance; a raised lactate; positive blood cultures; cloudy spinal fluid; a low CD4 count; a cavitary lesion; a positive antigen test; grouped vesicles; a positive toxin assay",
        "drugs": "cephalexin; vancomycin; piperacillin-tazobactam; tenofovir; isoniazid; oseltamivir; remdesivir; doxycycline; valacyclovir",
        "procedures": "incision and drainage; debridement; central line placement; blood cultures; isolation",
    },
    "oncology and hematology": {
        "conditions": "breast cancer; lung cancer; colon cancer; pancreatic cancer; melanoma; lymphoma; acute leukemia; multiple myeloma; iron deficiency anemia; sickle cell disease; thrombocytopenia; deep vein thrombosis; neutropenia",
        "symptoms": "a painless lump; hemoptysis; a change in bowel habits; jaundice; a changing mole; enlarged nodes; easy bleeding; back pain at night; fatigue and pallor; a painful crisis; a swollen calf",
        "findings": "a spiculated mass; a hilar mass; liver metastases; a dilated bile duct; an asymmetric pigmented lesion; bulky adenopathy; circulating blasts; a monoclonal spike; a low ferritin; a platelet count of twenty thousand",
        "drugs": "tamoxifen; carboplatin; capecitabine; gemcitabine; pembrolizumab; rituximab; cytarabine; lenalidomide; ferrous sulfate; hydroxyurea; rivaroxaban",
        "procedures": "mastectomy; lobectomy; hemicolectomy; port placement; bone marrow biopsy; radiation therapy; transfusion",
    },
    "rheumatology and dermatology": {
        "conditions": "rheumatoid arthritis; systemic lupus erythematosus; gout; fibromyalgia; polymyalgia rheumatica; ankylosing spondylitis; psoriasis; eczema; acne vulgaris; rosacea; urticaria; basal cell carcinoma; actinic keratosis",
        "symptoms": "morning stiffness of the hands; a rash across the cheeks; sudden pain in the great toe; widespread aching; shoulder girdle stiffness; scaly plaques on the elbows; itching; facial flushing; hives; a sore that does not heal",
        "findings": "swollen metacarpal joints; a positive antinuclear antibody; urate crystals; tender points; a raised sedimentation rate; silvery scale; lichenified skin; comedones; a pearly papule",
        "drugs": "methotrexate; hydroxychloroquine; colchicine; allopurinol; duloxetine; adalimumab; clobetasol; tretinoin; cetirizine",
        "procedures": "joint aspiration; punch biopsy; phototherapy; Mohs surgery; cryotherapy",
    },
    "women's health": {
        "conditions": "gestational diabetes; preeclampsia; preterm labor; hyperemesis gravidarum; ectopic pregnancy; uterine fibroids; endometriosis; polycystic ovary syndrome; ovarian cyst; menorrhagia; pelvic inflammatory disease; bacterial vaginosis",
        "symptoms": "decreased fetal movement; headache in the third trimester; regular contractions; vomiting in early pregnancy; one-sided pelvic pain; heavy periods; painful periods; irregular cycles; discharge",
        "findings": "an abnormal glucose tolerance test; proteinuria with raised pressure; cervical dilation; an adnexal mass; an enlarged irregular uterus; a complex cyst; cervical motion tenderness; clue cells",
        "drugs": "prenatal vitamins; labetalol; magnesium sulfate; ondansetron; letrozole; norethindrone; metronidazole gel",
        "procedures": "cesarean section; fetal ultrasound; laparoscopy; myomectomy; hysterectomy; dilation and curettage",
    },
    "eye, ear, nose and throat": {
        "conditions": "cataract; glaucoma; macular degeneration; diabetic retinopathy; conjunctivitis; allergic rhinitis; chronic sinusitis; deviated septum; otitis media; hearing loss; vertigo; tonsillitis; epistaxis; hoarseness",
        "symptoms": "blurred vision; halos around lights; distorted central vision; a red eye; sneezing; facial pressure; nasal obstruction; ear pain; ringing in the ears; spinning on turning over; sore throat; nosebleeds",
        "findings": "a dense nuclear opacity; an enlarged optic cup; drusen; retinal hemorrhages; pale boggy turbinates; mucosal thickening; a bulging eardrum; a positive Dix-Hallpike maneuver; tonsillar exudate; an inflamed vocal cord",
        "drugs": "latanoprost; timolol; aflibercept; erythromycin ointment; loratadine; mometasone; amoxicillin; meclizine; penicillin",
        "procedures": "phacoemulsification; trabeculectomy; endoscopic sinus surgery; septoplasty; tympanostomy tube placement; tonsillectomy; laryngoscopy",
    },
}
