//! One sender's messages, and what became of them; one receiver, and what it has got and holds.

use rma_channel::{ReceiveError, SendError, SendHandle, SendState, Sender, ring::Position};
use rma_core::{executor::CallStatus, time::Instant};
use rma_sim::{net::frame::NodeId, prng::Prng};

use super::end::{End, Taken};

/// How long messages are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lens {
    /// All as long as this.
    All(u32),
    /// From the shortest to the longest, drawn so that short ones are as frequent as long ones.
    Mixed(u32, u32),
}

impl Lens {
    fn draw(self, prng: &mut Prng) -> usize {
        match self {
            Self::All(len) => len as usize,
            Self::Mixed(least, most) => {
                (u64::from(least) - 1 + prng.magnitude(u64::from(most - least) + 1)) as usize
            }
        }
    }
}

/// A message that was taken.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) handle: SendHandle,
    pub(crate) bytes: Vec<u8>,
    pub(crate) state: SendState,
    /// How many receivers have claimed it, and how many have given it back.
    pub(crate) claimed: usize,
    pub(crate) freed: usize,
    /// A later one was claimed before it: so it must have failed.
    pub(crate) skipped: bool,
}

impl Sent {
    /// Whether its sender was told that it was not published.
    pub(crate) fn is_unpublished(&self) -> bool {
        matches!(self.state, SendState::Failed(status) if status != CallStatus::Unknown)
    }
}

/// A sender, and its messages.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) node: NodeId,
    /// `None` once it was dropped.
    pub(crate) end: Option<Box<dyn Sender>>,
    prng: Prng,
    lens: Lens,
    /// Whether messages begin with whoever sent them, as nobody else says.
    pub(crate) is_marked: bool,
    /// Messages that are still to be sent.
    pub(crate) left: u64,
    pub(crate) sent: Vec<Sent>,
    /// All before it are processed.
    pub(crate) open: usize,
    /// Whether its application does not look, though its host runs.
    pub(crate) is_asleep: bool,
    /// The reason why it sends no more.
    pub(crate) broken: Option<SendError>,
    /// How often there was no room.
    pub(crate) full: u64,
}

impl Stream {
    pub(crate) fn new(
        node: NodeId,
        end: Box<dyn Sender>,
        prng: Prng,
        lens: Lens,
        count: u64,
    ) -> Self {
        Self {
            node,
            end: Some(end),
            prng,
            lens,
            is_marked: false,
            left: count,
            sent: Vec::new(),
            open: 0,
            is_asleep: false,
            broken: None,
            full: 0,
        }
    }

    /// The next message. It is another one each time, if it is not very short.
    pub(crate) fn draw(&self) -> Vec<u8> {
        let mut prng = self.prng.fork(self.sent.len() as u64);
        let mut bytes = vec![0; self.lens.draw(&mut prng)];
        prng.fill(&mut bytes);
        if self.is_marked {
            bytes[0] = self.node.0 as u8;
        }
        bytes
    }

    /// Its end, if its application looks, and may send.
    fn wakeful(&self) -> Option<&dyn Sender> {
        let is_wakeful = !self.is_asleep && self.broken.is_none();
        self.end.as_deref().filter(|_| is_wakeful)
    }

    /// When it wants to look again.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.wakeful()?.poll_timeout()
    }

    /// Whether no more is to be sent.
    pub(crate) const fn is_over(&self) -> bool {
        self.left == 0 || self.broken.is_some() || self.end.is_none()
    }
}

/// The habit of a receiver's application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// It takes all that has come, and gives it back at once.
    Prompt,
    /// It takes one message in so many looks.
    Slow(u32),
    /// It takes all that has come, and keeps up to so many, while more come; it gives back one from
    /// their middle.
    Holding(usize),
    /// It takes nothing.
    Idle,
    /// It takes all that has come, and gives nothing back.
    Hoarding,
}

/// A message that a receiver has taken.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) taken: Taken,
    /// The stream that it belongs to.
    pub(crate) stream: usize,
    pub(crate) number: usize,
}

/// A receiver, and what it has got.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) node: NodeId,
    /// `None` once it was dropped.
    pub(crate) end: Option<Box<dyn End>>,
    pub(crate) habit: Habit,
    /// By stream: the next message.
    pub(crate) next: Vec<usize>,
    pub(crate) held: Vec<Held>,
    pub(crate) looks: u32,
    /// In how many looks on end nothing has come.
    pub(crate) idle: u32,
    /// The reason why nothing more comes.
    pub(crate) ended: Option<ReceiveError>,
    /// The place of the newest message.
    pub(crate) newest: Option<Position>,
    /// How often it took back what was reserved.
    pub(crate) recoveries: u64,
}

impl Reader {
    pub(crate) fn new(node: NodeId, end: Box<dyn End>, streams: usize) -> Self {
        let (end, next, held) = (Some(end), vec![0; streams], Vec::new());
        Self {
            node,
            end,
            habit: Habit::Prompt,
            next,
            held,
            looks: 0,
            idle: 0,
            ended: None,
            newest: None,
            recoveries: 0,
        }
    }

    /// Whether it takes one more in this look, of which it has taken `taken`.
    pub(crate) const fn wants(&self, taken: u32) -> bool {
        match self.habit {
            Habit::Prompt | Habit::Holding(_) | Habit::Hoarding => true,
            Habit::Slow(looks) => taken == 0 && self.looks.is_multiple_of(looks),
            Habit::Idle => false,
        }
    }

    /// Returns the held message that it gives back now.
    pub(crate) fn due(&self) -> Option<usize> {
        match self.habit {
            Habit::Prompt | Habit::Slow(_) => self.held.len().checked_sub(1),
            Habit::Holding(most) if self.held.len() > most || self.idle > 12 => {
                (!self.held.is_empty()).then_some(self.held.len() / 2)
            }
            _ => None,
        }
    }
}
