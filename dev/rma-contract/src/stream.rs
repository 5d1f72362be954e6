//! One sender's messages, and what became of them; one receiver, and what it has got and holds.

use rma_channel::{ReceiveError, SendError, SendHandle, SendState, Sender, ring::Position};
use rma_core::{executor::CallStatus, time::Instant};
use rma_sim::{net::frame::NodeId, prng::Prng};

use super::end::{End, Taken};

/// How long messages are.
#[derive(Clone, Copy, Debug)]
pub enum Lens {
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
pub struct Sent {
    /// Its handle.
    pub handle: SendHandle,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The state that its sender has been told.
    pub state: SendState,
    /// How many receivers have claimed it.
    pub claimed: usize,
    /// How many receivers have given it back.
    pub freed: usize,
    /// A later one was claimed before it: so it must have failed.
    pub skipped: bool,
}

impl Sent {
    /// Whether its sender was told that it was not published.
    pub fn is_unpublished(&self) -> bool {
        matches!(self.state, SendState::Failed(status) if status != CallStatus::Unknown)
    }
}

/// A sender, and its messages.
#[derive(Debug)]
pub struct Stream {
    /// The node that it is on.
    pub node: NodeId,
    /// `None` once it was dropped.
    pub end: Option<Box<dyn Sender>>,
    prng: Prng,
    lens: Lens,
    /// Whether messages begin with whoever sent them, as nobody else says.
    pub is_marked: bool,
    /// Messages that are still to be sent.
    pub left: u64,
    /// The messages that were taken, in order.
    pub sent: Vec<Sent>,
    /// All before it are processed.
    pub open: usize,
    /// Whether its application does not look, though its host runs.
    pub is_asleep: bool,
    /// The reason why it sends no more.
    pub broken: Option<SendError>,
    /// How often there was no room.
    pub full: u64,
}

impl Stream {
    /// A sender of so many messages.
    pub fn new(node: NodeId, end: Box<dyn Sender>, prng: Prng, lens: Lens, count: u64) -> Self {
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
    pub fn draw(&self) -> Vec<u8> {
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
    pub fn wake_at(&self) -> Option<Instant> {
        self.wakeful()?.poll_timeout()
    }

    /// Whether no more is to be sent.
    pub const fn is_over(&self) -> bool {
        self.left == 0 || self.broken.is_some() || self.end.is_none()
    }
}

/// The habit of a receiver's application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
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
pub struct Held {
    /// The message.
    pub taken: Taken,
    /// The stream that it belongs to.
    pub stream: usize,
    /// Its number in that stream.
    pub number: usize,
}

/// A receiver, and what it has got.
#[derive(Debug)]
pub struct Reader {
    /// The node that it is on.
    pub node: NodeId,
    /// `None` once it was dropped.
    pub end: Option<Box<dyn End>>,
    /// Its habit.
    pub habit: Habit,
    /// By stream: the next message.
    pub next: Vec<usize>,
    /// The messages that it holds.
    pub held: Vec<Held>,
    /// How often it has looked.
    pub looks: u32,
    /// In how many looks on end nothing has come.
    pub idle: u32,
    /// The reason why nothing more comes.
    pub ended: Option<ReceiveError>,
    /// The place of the newest message.
    pub newest: Option<Position>,
    /// How often it took back what was reserved.
    pub recoveries: u64,
}

impl Reader {
    /// A receiver of so many streams.
    pub fn new(node: NodeId, end: Box<dyn End>, streams: usize) -> Self {
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
    pub const fn wants(&self, taken: u32) -> bool {
        match self.habit {
            Habit::Prompt | Habit::Holding(_) | Habit::Hoarding => true,
            Habit::Slow(looks) => taken == 0 && self.looks.is_multiple_of(looks),
            Habit::Idle => false,
        }
    }

    /// Returns the held message that it gives back now.
    pub fn due(&self) -> Option<usize> {
        match self.habit {
            Habit::Prompt | Habit::Slow(_) => self.held.len().checked_sub(1),
            Habit::Holding(most) if self.held.len() > most || self.idle > 12 => {
                (!self.held.is_empty()).then_some(self.held.len() / 2)
            }
            _ => None,
        }
    }
}
