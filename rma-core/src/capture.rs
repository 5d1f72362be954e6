//! Captures: packets of a host or of a simulated one as a pcapng file, with what became of each
//! frame (not in the paper). Formatting alone: who has a file writes the octets. Blocks and headers
//! need the feature `capture`; fates are there without it.
//!
//! # The file
//!
//! pcapng of one section, in little-endian order, as Wireshark, tshark and tcpdump read it. Who
//! else reads or rewrites such files may rely on this:
//!
//! | block | has |
//! |---|---|
//! | section header | `shb_userappl`: the program |
//! | interface description | one for each receive queue, in their order: link type Ethernet (1), `if_name`, `if_tsresol` 9 (nanoseconds); a queue that comes later is described before its first packet |
//! | enhanced packet | time, the first octets of the packet with all its headers, its length; `epb_flags` bits 0 and 1: 1 came in, 2 went out; one `opt_comment` for each frame; `epb_dropcount` if packets before it were missed |
//! | interface statistics | at the end, for each interface: `isb_ifrecv` packets that were seen, `isb_ifdrop` of them missed. Not there if the host was killed |
//!
//! A frame's comment is `1rma I/N FATE`: frame I of N in its packet, from 1, and what became of it:
//!
//! | FATE | meaning |
//! |---|---|
//! | `ok` | received and taken |
//! | `drop=REASON` | received and dropped: the name of a [`DropReason`](crate::error::DropReason), as `drop=RequestUnauthenticated`. The end of a packet that is no frame is its last |
//! | `elsewhere` | received, and handed over to the engine of the host that it is for |
//! | `star` | received for the service of that name, whose own counters say |
//! | `sent` | sent |
//!
//! Comments that tell of no frame begin with `1rma` and a word: `1rma device dropped it` of a
//! packet that came to this host's port and never reached the NIC, `1rma interface gone` and `1rma
//! interface back` on the first packet, or statistics, after that.
//!
//! Octets are those of the wire: encrypted, as they came or went, and cut to the snap length. With
//! a snap length of 0 there are no octets, and fates still. Where the kernel has the headers
//! (UDP sockets, the simulator) those of Ethernet, IP and UDP are made up (`headers`): addresses,
//! ports and lengths are right, and hop limits and hardware addresses mean nothing. What a host
//! sends to itself is in no capture.

mod fate;
#[cfg(feature = "capture")]
pub mod headers;
#[cfg(feature = "capture")]
mod pcapng;
mod verdicts;

pub use fate::Fate;
#[cfg(feature = "capture")]
pub use pcapng::{Blocks, Captured, Comment, Direction};
pub use verdicts::{Told, Verdicts};
