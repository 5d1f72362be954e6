//! Requests and replies, octet by octet. Normative page: `docs/KEYS.md`, with the CDDL.
//!
//! A message is one CBOR item (RFC 8949): a map whose keys are small numbers that ascend, of which
//! the first is the version. Fields that are not known are skipped, so that messages can grow;
//! another version is refused, whatever follows. No length is indefinite, nothing follows the item,
//! and every number, list and text has a limit. Decoding neither recurses nor allocates more than
//! what a message of that length can hold.
//!
//! | module | what it is |
//! |---|---|
//! | [`frame`] | the length before a message on a stream |
//! | [`request`] | what a client asks for |
//! | [`reply`] | what it gets |
//! | [`malformed`] | why octets are no message: the field, and its value |
//! | `reader`, `writer` | CBOR with limits, over `minicbor` |
//!
//! Who sends a message is not said in it, but for the address and the PID that the keys are to be
//! bound to: those are claims.

pub mod frame;
pub mod malformed;
mod reader;
pub mod reply;
pub mod request;
mod writer;
