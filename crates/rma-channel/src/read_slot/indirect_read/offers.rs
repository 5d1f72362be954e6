//! The terms of lent buffers, and the words that offer them.

use core::{fmt, time::Duration};

use rma_core::{executor::CallStatus, gate::Peer, limits::RECEIVES_MAX, op::OpType, time::Instant};
use thiserror::Error;

use crate::{
    ring::{Malformed, Position, padded},
    table::Kind,
    terms::{Agreed, OpenError, within},
    write_slot::SlotConfig,
};

/// The settings that the receiver is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct IndirectConfig {
    /// The application's name for the channel.
    pub name: u64,
    /// How many buffers may be lent, or hold messages, at a time: 1 to 32768.
    pub buffers: u16,
    /// The longest message, in bytes: 1 to [`SlotConfig::LEN_MAX`].
    pub len_max: u32,
    /// How many senders there can be at a time: 1 to 4096. If the receiver lends by itself, no more
    /// than there are buffers.
    pub senders: u16,
    /// How many buffers one sender can have at a time: 1 to 16384. More: more of its messages are
    /// under way at a time, and it needs as much memory to copy messages into.
    pub lent: u16,
    /// For how many epochs senders are given grants, 1 to 32: so many times less one
    /// [`super::Receiver::take_back`] can be called before a sender needs new terms.
    pub epochs: u8,
    /// For how long an op that is refused is tried again, as the next epoch may just begin, or
    /// somebody may have forged that. Longer: an end knows later that the other has restarted.
    pub patience: Duration,
}

impl Default for IndirectConfig {
    fn default() -> Self {
        Self {
            name: 0,
            buffers: 256,
            len_max: 4096,
            senders: 64,
            lent: 16,
            epochs: 8,
            patience: Duration::from_secs(1),
        }
    }
}

/// The most buffers of one sender: so that a number of 26 bits says which of the offers it is.
pub(super) const LENT_MAX: u16 = 1 << 14;

/// The most senders.
const SENDERS_MAX: u64 = 1 << 12;

/// With two grants for each, terms hold no more.
const EPOCHS_MAX: u64 = 32;

/// The longest memory, in bytes: so that 32 bits say where in it a buffer begins.
pub(super) const MEMORY_MAX: u64 = 1 << 35;

impl IndirectConfig {
    /// How much memory the buffers take, in bytes.
    #[must_use]
    pub const fn memory_len(&self) -> u64 {
        self.buffers as u64 * self.stride()
    }

    /// How far apart buffers are, in bytes.
    pub(super) const fn stride(&self) -> u64 {
        padded(self.len_max)
    }

    pub(super) fn check(&self) -> Result<(), OpenError> {
        let Self { buffers, len_max, senders, lent, epochs, .. } = *self;
        let (most, longest) = (RECEIVES_MAX.into(), SlotConfig::LEN_MAX.into());
        within("the number of buffers", buffers, 1..=most, "it must be 1 to 32768")?;
        within("the longest message", len_max, 1..=longest, "it must be 1 byte to 1 GiB")?;
        within("the number of senders", senders, 1..=SENDERS_MAX, "it must be 1 to 4096")?;
        let most = LENT_MAX.into();
        within("the number of buffers of one", lent, 1..=most, "it must be 1 to 16384")?;
        within("the number of epochs", epochs, 1..=EPOCHS_MAX, "it must be 1 to 32")
    }

    pub(super) const fn agreed(&self) -> Agreed {
        let micros = self.patience.as_micros() as u64;
        let numbers = [self.lent as u64, self.len_max as u64, micros];
        Agreed { kind: Kind::ReadSlotIndirect, name: self.name, numbers }
    }

    /// Decodes the settings in a receiver's terms; nothing that cannot be.
    pub(super) fn told(agreed: &Agreed) -> Result<Self, OpenError> {
        let [lent, len_max, micros] = agreed.numbers;
        let config = Self {
            name: agreed.name,
            lent: u16::try_from(lent).unwrap_or(u16::MAX),
            len_max: u32::try_from(len_max).unwrap_or(u32::MAX),
            patience: Duration::from_micros(micros),
            ..Self::default()
        };
        config.check()?;
        Ok(config)
    }
}

/// The ops that a sender needs grants for, in each epoch, on the one region.
pub(super) const EACH: [(usize, OpType); 2] = [(0, OpType::WriteWithImm), (0, OpType::Write)];
pub(super) const NEEDS: &[OpType] = &[EACH[LAST].1, EACH[OTHERS].1];
pub(super) const LAST: usize = 0;
pub(super) const OTHERS: usize = 1;

/// The content of a NOTIFY: in 26 bits which offer, in 6 in which of the epochs that its sender has
/// grants for, and in 32 where its buffer begins, in words of 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) number: u32,
    pub(super) epoch: u8,
    pub(super) offset: u64,
}

impl Offer {
    pub(super) const NUMBERS: u32 = 1 << 26;
    const EPOCHS: u8 = 1 << 6;

    /// The offer that tells a sender that it is out: nobody has grants for that epoch.
    pub(super) const NO_MORE: Self = Self { number: 0, epoch: Self::EPOCHS - 1, offset: 0 };

    /// `epoch` counts from when the sender has joined; beyond what it can have grants for, it is
    /// all the same.
    pub(super) fn new(number: Position, epoch: u64, offset: u64) -> Self {
        let number = number.to_bits() as u32 % Self::NUMBERS;
        Self { number, epoch: epoch.min((Self::EPOCHS - 1).into()) as u8, offset }
    }

    pub(super) const fn to_word(self) -> u64 {
        self.number as u64 | (self.epoch as u64) << 26 | (self.offset / 8) << u32::BITS
    }

    pub(super) const fn from_word(word: u64) -> Self {
        let low = word as u32;
        let (number, epoch) = (low % Self::NUMBERS, (low / Self::NUMBERS) as u8);
        Self { number, epoch, offset: (word >> u32::BITS) * 8 }
    }
}

/// A sender, as its receiver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Borrower {
    /// The peer that borrows.
    pub peer: Peer,
    /// How many buffers it has: lent to it, or with messages of it that are not given back.
    pub has: u64,
    /// Whether it is lent more.
    pub standing: Standing,
}

/// Whether buffers are lent to a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// They are, once its terms were [accepted](super::Receiver::accept).
    Present,
    /// They no longer are: it cannot be told of them, as it has restarted, or has never been there.
    /// What it had is lent until it is [taken back](super::Receiver::take_back).
    Gone {
        /// The status of the last NOTIFY.
        status: CallStatus,
    },
    /// They no longer are, and nothing more comes from it: it said what cannot be. What it had is
    /// lent until it is [taken back](super::Receiver::take_back), and until then it can write.
    Malformed(Malformed),
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present => f.write_str("is lent buffers"),
            Self::Gone { status } => write!(f, "is gone: a NOTIFY ended with {status}"),
            Self::Malformed(error) => write!(f, "said what cannot be: {error}"),
        }
    }
}

/// The reason why a buffer was not lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OfferError {
    /// This receiver lends buffers by itself.
    #[error("this receiver lends its buffers by itself; open it with Receiver::open_unlent")]
    Lends,
    /// It is no sender that can be told of buffers.
    #[error("{peer} is no sender that buffers are lent to; admit it, and accept its terms")]
    NoSender {
        /// To whom it was to be lent.
        peer: Peer,
    },
    /// The sender, or all senders together, have as many as they may.
    #[error("all buffers are lent or hold messages; give messages back first")]
    Full,
    /// A message cannot be there.
    #[error(
        "a buffer of {len} bytes at {offset} of a memory of {reach}: begin at a multiple of 8, \
         within the memory, where no other buffer is that is lent or holds a message"
    )]
    Place {
        /// The offset of its beginning.
        offset: u64,
        /// How long buffers are.
        len: u64,
        /// How long the memory is.
        reach: u64,
    },
}

/// An op that was refused, and when it is tried again: later and later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    since: Instant,
    pub(super) at: Instant,
    wait: Duration,
    tries: u32,
}

impl Again {
    const FIRST: Duration = Duration::from_micros(20);
    const LONGEST: Duration = Duration::from_millis(5);

    /// It was refused now, and `before`.
    pub(super) fn refused(before: Option<Self>, now: Instant) -> Self {
        let (since, wait, tries) = before.map_or((now, Self::FIRST, 0), |it| {
            (it.since, (it.wait * 2).min(Self::LONGEST), it.tries + 1)
        });
        Self { since, at: now + wait, wait, tries }
    }

    /// Whether it was tried for so long, and often enough: whoever was stopped for long has not
    /// tried for long.
    pub(super) fn is_over(&self, now: Instant, patience: Duration) -> bool {
        self.tries > 4 && now.since(self.since) > patience
    }
}

rma_core::settings!(IndirectConfig);
