//! Requests and replies, octet by octet. Normative page: `docs/KEYS.md`, with the CDDL.
//!
//! A message is one CBOR item (RFC 8949): a map whose keys are small numbers that ascend, of which
//! the first is the version. Fields that are not known are skipped, so that messages can grow;
//! another version is refused, whatever follows. No length is indefinite, nothing follows the item,
//! and every number, list and text has a limit. Decoding neither recurses nor allocates more than
//! what a message of that length can hold.
//!
//! A reply repeats the number of its request, which comes next to the version: so it can be told
//! what is answered even if nothing else of the request was understood.
//!
//! | module | what it is |
//! |---|---|
//! | [`frame`] | the length before a message on a stream |
//! | [`request`] | what a client asks for |
//! | [`reply`] | what it gets |
//! | [`malformed`] | why octets are no message: the field, and its value |
//! | `reader`, `writer` | CBOR with limits, over `minicbor` |
//!
//! Who sends a message is not said in it, but for the address and the PID that the keys must be
//! bound to: those are claims.

pub mod frame;
pub mod malformed;
mod reader;
pub mod reply;
pub mod request;
mod writer;

use minicbor::decode::Decoder;

use crate::limits::VERSION;

/// The number of a request, or of the request that a reply is to: of a message of this version, if
/// it can be read. The rest of the message is not looked at.
#[must_use]
pub fn number(octets: &[u8]) -> Option<u32> {
    let mut decoder = Decoder::new(octets);
    let fields = decoder.map().ok()??;
    let version = (decoder.u64().ok()?, decoder.u64().ok()?);
    if fields < 2 || version != (0, VERSION) || decoder.u64().ok()? != 1 {
        return None;
    }
    decoder.u64().ok()?.try_into().ok()
}
