//! Frames, and a network that is the attacker's.
//!
//! The network is the set of frames ever sent. Whatever is in it may be delivered at any time and
//! any number of times, or never: that is loss, delay, reordering, duplication and replay in one.
//! A frame leaves it only as it has become too old for its receiver, by a step that waits for this.
//!
//! Sealing is symbolic. A frame names the job whose key it is sealed under, and the copy that has
//! its IV and expiry; nobody can make a frame by other means than sending it.

use super::script::{CHUNKS_MAX, COPIES_MAX, JOBS_MAX, JobId};

/// A chunk's frame, by what its tag vouches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) job: JobId,
    pub(super) chunk: u8,
    pub(super) copy: u8,
}

/// A frame. Of an RDA, a GDA and an EA there is one kind each: that the job is done, or its data.
/// "Gone" ends a connection, which F may do at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// Z's WQE. Z's library posts it again, which makes the same frame.
    Wqep {
        job: JobId,
    },
    /// The same, while it is young, with inline data that F has room for.
    YoungWqep {
        job: JobId,
    },
    /// The same, posted or posted again when all before it in its queue are complete at Z, which it
    /// says.
    KnowingWqep {
        job: JobId,
    },
    Rd(Piece),
    Rda(Piece),
    Gd(Piece),
    Gda(Piece),
    Cqep {
        job: JobId,
        copy: u8,
    },
    Ea {
        job: JobId,
        copy: u8,
    },
}

const PIECES: u8 = CHUNKS_MAX * COPIES_MAX;
const RD: u8 = 3;
const RDA: u8 = RD + PIECES;
const GD: u8 = RDA + PIECES;
const GDA: u8 = GD + PIECES;
const CQEP: u8 = GDA + PIECES;
const EA: u8 = CQEP + COPIES_MAX;
const END: u8 = EA + COPIES_MAX;

// One bit of a `Network` for each frame that can be.
const _: () = assert!(END as usize * JOBS_MAX <= u128::BITS as usize);

impl Frame {
    fn number(self) -> u8 {
        let piece = |Piece { chunk, copy, .. }| chunk * COPIES_MAX + copy;
        let place = match self {
            Self::Wqep { .. } => 0,
            Self::YoungWqep { .. } => 1,
            Self::KnowingWqep { .. } => 2,
            Self::Rd(it) => RD + piece(it),
            Self::Rda(it) => RDA + piece(it),
            Self::Gd(it) => GD + piece(it),
            Self::Gda(it) => GDA + piece(it),
            Self::Cqep { copy, .. } => CQEP + copy,
            Self::Ea { copy, .. } => EA + copy,
        };
        self.job() * END + place
    }

    fn of_number(number: u8) -> Self {
        let (job, place) = (number / END, number % END);
        let piece = |at: u8| Piece {
            job,
            chunk: (place - at) / COPIES_MAX,
            copy: (place - at) % COPIES_MAX,
        };
        match place {
            0 => Self::Wqep { job },
            1 => Self::YoungWqep { job },
            2 => Self::KnowingWqep { job },
            RD..RDA => Self::Rd(piece(RD)),
            RDA..GD => Self::Rda(piece(RDA)),
            GD..GDA => Self::Gd(piece(GD)),
            GDA..CQEP => Self::Gda(piece(GDA)),
            CQEP..EA => Self::Cqep { job, copy: place - CQEP },
            EA.. => Self::Ea { job, copy: place - EA },
        }
    }

    /// The job whose key it is sealed under, or whose connection's.
    pub(super) fn job(self) -> JobId {
        match self {
            Self::Wqep { job }
            | Self::YoungWqep { job }
            | Self::KnowingWqep { job }
            | Self::Cqep { job, .. }
            | Self::Ea { job, .. } => job,
            Self::Rd(it) | Self::Rda(it) | Self::Gd(it) | Self::Gda(it) => it.job,
        }
    }

    pub(super) fn is_for_z(self) -> bool {
        matches!(self, Self::Rd(_) | Self::Gd(_) | Self::Cqep { .. })
    }
}

/// All frames that can be delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Network(u128);

impl Network {
    /// From now on the frame can be delivered.
    pub(super) fn send(&mut self, frame: Frame) {
        self.0 |= 1 << frame.number();
    }

    /// From now on the frame cannot be delivered.
    pub(super) fn remove(&mut self, frame: Frame) {
        self.0 &= !(1 << frame.number());
    }

    pub(super) fn has(self, frame: Frame) -> bool {
        self.0 & 1 << frame.number() != 0
    }

    pub(super) fn frames(self) -> impl Iterator<Item = Frame> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let number = rest.trailing_zeros() as u8;
            rest &= rest.checked_sub(1)?;
            Some(Frame::of_number(number))
        })
    }
}

#[test]
fn every_frame_has_a_number_of_its_own() {
    for number in 0..END * JOBS_MAX as u8 {
        assert_eq!(Frame::of_number(number).number(), number);
    }
}
