"""Stop words of languages for which tantivy has no list: Arabic and Thai.

They are short lists of function words (prepositions, conjunctions, pronouns, particles, auxiliary verbs),
made for Elanus; the reference's lists are longer.
"""

from __future__ import annotations

from collections.abc import Mapping

from elanus.text.normalizing import normalized_arabic

_ARABIC = """
من في على إلى عن مع منذ حتى خلال بين عند لدى ضد حول فوق تحت قبل بعد أمام وراء دون غير سوى
و أو ثم أم بل لكن لكنّ إن أن أنّ إنّ كأن لأن إذا إذ لو لولا لما كما كي لكي
ما لا لم لن ليس ليست قد سوف هل أي أيضا فقط كل بعض نحو حيث بينما كيف متى أين لماذا
هو هي هم هن هما أنا نحن أنت أنتم هذا هذه ذلك تلك هؤلاء أولئك هنا هناك
الذي التي الذين اللذان اللتان اللاتي اللواتي
كان كانت كانوا يكون تكون يمكن ومن وفي وعلى وإلى وهو وهي وهم ولا ولم ولن وقد وكان وكانت وأن وإن
به بها بهم فيه فيها فيهم منه منها منهم عنه عنها عليه عليها عليهم إليه إليها له لها لهم
فإن فهو فهي فقد فلا فيما عما مما
"""
_THAI = """
ที่ ซึ่ง อัน และ หรือ แต่ กับ แก่ แด่ ต่อ ของ แห่ง ใน นอก บน ใต้ จาก ถึง โดย ด้วย เพื่อ สำหรับ ตาม เมื่อ
ขณะ ระหว่าง ก่อน หลัง จน ถ้า หาก เพราะ เนื่องจาก ดังนั้น ดังกล่าว แม้ ว่า การ ความ เป็น คือ อยู่ มี ได้ ให้ ไป มา
จะ ต้อง ควร อาจ กำลัง เคย ยัง แล้ว ไม่ ก็ คง นี้ นั้น โน้น เหล่านี้ เหล่านั้น นี่ นั่น ทั้ง ทั้งนี้ ทุก บาง หลาย แต่ละ
เขา เธอ มัน เรา ท่าน ผม ดิฉัน อีก เอง กัน นะ ครับ ค่ะ คะ จ้ะ ไว้ ขึ้น ลง เข้า ออก พร้อม เช่น อย่าง เท่านั้น
"""

STOP_LISTS: Mapping[str, frozenset[str]] = {
    "arabic": frozenset(form for word in _ARABIC.split() for form in (word, normalized_arabic(word))),
    "thai": frozenset(_THAI.split()),
}
"""By the language's name. Arabic words are listed as written, and as ``arabic_normalization`` leaves them."""
