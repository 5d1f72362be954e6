//! The frames that are sent, and their length on the wire, in the paper's sizes and in ours.
//!
//! A frame's meaning is the few counts that the model acts on. A packet is one or more frames
//! behind one set of headers; the paper's has one. Ours are as long as `rma-star` makes them.

use rma_core::limits::TAG_LEN;
use rma_star::wire::{
    data::{GDA_HEADER_LEN, GUIDE_HEADER_LEN, RDA_HEADER_LEN},
    entries::{CQE_LEN, WQE_LEN},
    work::{EA_ENTRY_LEN, TAKEN_LEN, WORK_HEADER_LEN},
};

/// How much data a message of the workloads carries, in octets (StaR §II-B1, §V-A3).
pub const MESSAGE: u32 = 32;

/// A frame of RC or of StaR. "Server" is the side of many connections: StaR's stateless one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// RC: a SEND's data.
    Data,
    /// RC: its acknowledgement.
    Ack,
    /// RC: a READ's request.
    Request,
    /// RC: a READ's response, with its data.
    Response,
    /// StaR: work requests of the server.
    Wqep {
        /// How many of them are RECVs.
        receives: u32,
        /// How many are SENDs.
        sends: u32,
        /// Whether the data of SENDs is in the frame.
        inline: bool,
    },
    /// StaR: completions for the server.
    Cqep {
        /// How many of RECVs.
        receives: u32,
        /// How many of SENDs.
        sends: u32,
        /// Whether it also says what the client's EA would, and wants no answer.
        is_ea: bool,
    },
    /// StaR: the client's answer to a WQEP.
    EaOfClient,
    /// StaR: the server's answer to CQEPs and, if one EA covers several frames, to RDs.
    Ea {
        /// How many frames it answers.
        frames: u32,
        /// How many of them are RDs.
        rds: u32,
    },
    /// StaR: data for the server.
    Rd,
    /// StaR: the answer to one RD.
    Rda,
    /// StaR: asks for data of the server.
    Gd,
    /// StaR: that data.
    Gda,
}

/// The layout of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// The paper's: figures 7 and 8, with an FCS of 4 octets, as Ethernet has. RC's are as long.
    Paper,
    /// Ours, each with its tag: common header of 36 octets and what its type adds.
    Ours,
}

/// How long frames are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wire {
    /// The layout of the frames.
    pub layout: Layout,
    /// Octets of a work request in a WQEP. Ours are 64; 32 is what an op, an address, a length and
    /// a key need without what StaR's keys are bound to.
    pub entry: u32,
}

/// Ethernet, IP, UDP, FCS, and the preamble and gap that an Ethernet frame takes on the link.
const OUTER: u32 = 14 + 20 + 8 + 4 + 20;
/// The invariant checksum of RDMA over Ethernet. A tag serves in its place in ours.
const ICRC: u32 = 4;
/// The header that every frame of the paper has (figure 8).
const PAPER_HEADER: u32 = 20;
/// RC with an authenticated header like ours, less what only StaR's has, and a tag.
const OUR_RC_HEADER: u32 = 48;
/// A completion in a CQEP. The paper gives no number, so ours stands in both layouts.
const COMPLETION: u32 = CQE_LEN as u32;
/// The length of the two sequences of work requests that have been taken: in our EAs and CQEPs, and
/// in a CQEP of the paper's layout that says so.
const TAKEN: u32 = TAKEN_LEN as u32;
/// A work request in a WQEP of ours.
const ENTRY: u32 = WQE_LEN as u32;

impl Wire {
    /// The paper's frames with work requests of 64 octets.
    pub const PAPER: Self = Self { layout: Layout::Paper, entry: ENTRY };
    /// Our frames, with work requests of 64 octets.
    pub const OURS: Self = Self { layout: Layout::Ours, entry: ENTRY };

    /// Returns the octets that a packet of `frames` takes of a link.
    #[must_use]
    pub fn octets(self, frames: &[Frame]) -> u32 {
        let outer = match self.layout {
            Layout::Paper => OUTER + ICRC,
            Layout::Ours => OUTER,
        };
        outer + frames.iter().map(|&frame| self.frame(frame)).sum::<u32>()
    }

    /// One frame, from its own header to its end.
    fn frame(self, frame: Frame) -> u32 {
        let payload = match frame {
            Frame::Ack | Frame::Request | Frame::EaOfClient | Frame::Rda | Frame::Gd => 0,
            Frame::Data | Frame::Response | Frame::Rd | Frame::Gda => MESSAGE,
            Frame::Wqep { receives, sends, inline } => {
                (receives + sends) * self.entry + if inline { sends * MESSAGE } else { 0 }
            }
            Frame::Cqep { receives, sends, is_ea } => {
                let says_what_is_taken = is_ea || self.layout == Layout::Ours;
                (receives + sends) * COMPLETION + if says_what_is_taken { TAKEN } else { 0 }
            }
            Frame::Ea { frames, .. } => match self.layout {
                Layout::Paper => 0,
                Layout::Ours => frames * EA_ENTRY_LEN as u32,
            },
        };
        payload
            + match self.layout {
                Layout::Paper => PAPER_HEADER,
                Layout::Ours => match frame {
                    Frame::Data | Frame::Ack | Frame::Request | Frame::Response => OUR_RC_HEADER,
                    Frame::Wqep { .. } | Frame::Cqep { .. } | Frame::Ea { .. } => {
                        sealed(WORK_HEADER_LEN)
                    }
                    Frame::EaOfClient => sealed(WORK_HEADER_LEN + TAKEN_LEN),
                    Frame::Rda => sealed(RDA_HEADER_LEN),
                    Frame::Rd | Frame::Gd => sealed(GUIDE_HEADER_LEN),
                    Frame::Gda => sealed(GDA_HEADER_LEN),
                },
            }
    }
}

/// A header with the tag that ends its frame.
const fn sealed(header: usize) -> u32 {
    (header + TAG_LEN) as u32
}
