"""At which commit the released code was read that sources cite; their line numbers are of these commits."""

from __future__ import annotations

COMMITS = {
    "Sai-Ashish/Attention_guided_weight_mixup_BLO": "7aa6a27",
    "SamsungLabs/ASAM": "f156a68",
    "Sanyuan-Chen/RecAdam": "505ba3c",
    "Yuanhy1997/HyPe": "196efd5",
    "ZhangHaojie077/DPS": "b8e41a8",
    "alibaba/AliceMind": "a6d5afe",
    "allenai/dont-stop-pretraining": "266269f",
    "asappresearch/revisit-bert-finetuning": "0aa4f4e",
    "benzakenelad/BitFit": "7ead19a",
    "bloodwass/mixout": "18f377d",
    "cliang1453/SAGE": "87cefb1",
    "dinghanshen/Cutoff": "4978563",
    "dropreg/R-Drop": "9dcc830",
    "facebookresearch/fairseq": "3d262bb",
    "google-research/electra": "8a46635",
    "google-research/sam": "dae9904",
    "holyseven/TransferLearningClassification": "1426356",
    "huggingface/peft": "5d602fd",
    "huggingface/setfit": "0f8e322",
    "lemon0830/TDT": "51eb118",
    "leopard-ai/betty": "cb6221f",
    "mlfoundations/model-soups": "d5398f1",
    "mlfoundations/wise-ft": "58b7a4b",
    "namisan/mt-dnn": "3228e7c",
    "timgaripov/swa": "411b2fc",
    "uds-lsv/bert-stable-fine-tuning": "3cf27e8",
    "zhuchen03/FreeLB": "eb23701",
}
