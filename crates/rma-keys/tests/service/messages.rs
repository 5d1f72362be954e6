//! Messages as octets: the golden ones of `docs/vectors/keys-v1.json`, and what is none.

mod hostile;
mod roundtrip;
mod vectors;
