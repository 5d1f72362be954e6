//! The truth: the bytes that memory must have, and the messages that connections have carried.
//!
//! A [`Memory`] is an application's region, and a copy of what must be in it. Buffers are taken out
//! of it at random places, and between their uses they and what is around them must stay as they
//! are (S2, S5).

use std::{collections::VecDeque, ops::Range, sync::Arc};

use rma_shm::Region;
use rma_star::verbs::{WcStatus, WqeOp};

use crate::network::Random;

/// The bytes that a number stands for.
pub(crate) fn pattern(tag: u64, len: usize) -> Vec<u8> {
    let mut random = Random(tag);
    let mut bytes = vec![0; len.next_multiple_of(8)];
    for word in bytes.as_chunks_mut::<8>().0 {
        *word = random.next().to_le_bytes();
    }
    bytes.truncate(len);
    bytes
}

/// The part of a region that buffers are taken of. Before both is what peers may read, which never
/// changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Buffers of this application's own work requests.
    Local = 1,
    /// The part that peers may write.
    Target = 2,
}

/// Bytes of each part, and before them of what peers may read.
pub(crate) const PARTS: [Range<u64>; 3] = [0..SOURCE, SOURCE..SOURCE + LOCAL, SOURCE + LOCAL..LEN];
pub(crate) const SOURCE: u64 = 72 << 10;
const LOCAL: u64 = 640 << 10;
const LEN: u64 = SOURCE + LOCAL + (280 << 10);

/// How long buffers are that are at the beginning of a part, and how many bytes of it they share.
const SMALL: u32 = 128;
const SMALLS: u64 = 64 << 10;

/// A buffer, by its place in its part, so as memory regions of the part have it.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    part: Part,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

impl Buffer {
    fn span(&self) -> Range<u64> {
        let start = PARTS[self.part as usize].start + self.offset;
        start..start + u64::from(self.len)
    }
}

/// An application's memory.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) region: Arc<Region>,
    /// The expected content, but for buffers that are in use.
    expected: Vec<u8>,
    /// Buffers that are in use, and those that nobody will ever know of.
    taken: Vec<Range<u64>>,
    tags: Random,
}

impl Memory {
    pub(crate) fn new(mut tags: Random) -> Self {
        let region = Arc::new(Region::new(LEN as usize).expect("a region"));
        let expected = pattern(tags.next(), LEN as usize);
        region.copy_in(0, &expected).expect("within");
        Self { region, expected, taken: Vec::new(), tags }
    }

    /// Those of the part that peers may read, from `offset` on.
    pub(crate) fn source(&self, offset: u64, len: u32) -> &[u8] {
        let start = (PARTS[0].start + offset) as usize;
        &self.expected[start..start + len as usize]
    }

    /// A buffer that nobody has; it must be as it was left. `None` if none was found.
    pub(crate) fn take(&mut self, part: Part, len: u32) -> Option<Buffer> {
        let Range { start, end } = PARTS[part as usize];
        // Small ones are together, or there would be no room for others between them.
        let (first, end) = if len <= SMALL { (0, SMALLS) } else { (SMALLS, end - start) };
        let room = (end - first).checked_sub(len.into())?;
        let anywhere = std::array::from_fn::<_, 16, _>(|_| first + self.tags.below(room + 1));
        let behind: Vec<_> = self.taken.iter().map(|it| it.end.saturating_sub(start)).collect();
        let behind = behind.into_iter().filter(|at| (first..=first + room).contains(at));
        for offset in anywhere.into_iter().chain(behind).chain([first]) {
            let buffer = Buffer { part, offset, len };
            let span = buffer.span();
            let is_apart = |taken: &Range<u64>| taken.end <= span.start || span.end <= taken.start;
            if self.taken.iter().all(is_apart) {
                let (is, must) = (self.bytes(&span), self.must(&span));
                assert!(is == must, "{}", first_difference("a free buffer", &is, must));
                if len > 0 {
                    self.taken.push(span);
                }
                return Some(buffer);
            }
        }
        None
    }

    fn bytes(&self, span: &Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; (span.end - span.start) as usize];
        self.region.copy_out(span.start, &mut bytes).expect("within");
        bytes
    }

    fn must(&self, span: &Range<u64>) -> &[u8] {
        &self.expected[span.start as usize..span.end as usize]
    }

    /// Returns the present content of a buffer.
    pub(crate) fn read(&self, buffer: &Buffer) -> Vec<u8> {
        self.bytes(&buffer.span())
    }

    /// Returns the content when it was taken, or as its application has written it since.
    pub(crate) fn before(&self, buffer: &Buffer) -> &[u8] {
        self.must(&buffer.span())
    }

    pub(crate) fn write(&mut self, buffer: &Buffer, bytes: &[u8]) {
        let Range { start, end } = buffer.span();
        self.region.copy_in(start, bytes).expect("within");
        self.expected[start as usize..end as usize].copy_from_slice(bytes);
    }

    /// A work request is over: its application writes something else, and gives the buffer back.
    pub(crate) fn give_back(&mut self, buffer: &Buffer) {
        let bytes = pattern(self.tags.next(), buffer.len as usize);
        self.write(buffer, &bytes);
        let span = buffer.span();
        if let Some(at) = self.taken.iter().position(|taken| *taken == span) {
            self.taken.swap_remove(at);
        }
    }

    /// Every byte that nobody has must be as it was left.
    pub(crate) fn check(&self) {
        let mut is = self.bytes(&(0..LEN));
        for span in &self.taken {
            let span = span.start as usize..span.end as usize;
            is[span.clone()].copy_from_slice(&self.expected[span]);
        }
        assert!(is == self.expected, "{}", first_difference("memory", &is, &self.expected));
    }
}

/// Describes the first place where bytes are not what they must be.
pub(crate) fn first_difference(what: &str, is: &[u8], must: &[u8]) -> String {
    let at = is.iter().zip(must).position(|(is, must)| is != must);
    let count = is.iter().zip(must).filter(|(is, must)| is != must).count();
    format!("{what} of {} bytes: the first of {count} wrong ones is {at:?}", is.len())
}

/// A message that was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) tag: u64,
    pub(crate) len: u32,
    pub(crate) immediate: Option<u32>,
    /// It is what a WRITE writes, which takes a RECV if there is an immediate.
    pub(crate) is_write: bool,
}

impl Message {
    /// Whether a RECV takes it: it is of a SEND, or of a WRITE with an immediate.
    pub(crate) const fn takes_recv(&self, op: WqeOp) -> bool {
        matches!(op, WqeOp::Send) || (self.is_write && self.immediate.is_some())
    }
}

/// One direction of a connection (S3).
#[derive(Debug, Default)]
pub(crate) struct Direction {
    sent: Vec<Message>,
    /// SENDs, and WRITEs with immediates, that have succeeded.
    pub(crate) done: usize,
    /// RECVs that have succeeded.
    pub(crate) received: usize,
}

impl Direction {
    pub(crate) fn send(&mut self, message: Message) {
        self.sent.push(message);
    }

    /// A RECV has succeeded: which message it must have.
    pub(crate) fn receive(&mut self) -> Message {
        self.received += 1;
        *self.sent.get(self.received - 1).expect("a message that nobody has sent")
    }

    /// Notes that the taker of a RECV has succeeded: the next one, as completions are in order.
    pub(crate) fn acknowledge(&mut self, message: Message) {
        assert_eq!(self.sent.get(self.done), Some(&message), "SENDs succeed in order");
        self.done += 1;
    }
}

/// One queue of a queue pair: completions come in posting order, and after one that failed all
/// others are flushed.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    open: VecDeque<u64>,
    has_failed: bool,
}

impl Queue {
    pub(crate) fn post(&mut self, wr_id: u64) {
        self.open.push_back(wr_id);
    }

    pub(crate) fn complete(&mut self, wr_id: u64, status: WcStatus) {
        assert_eq!(self.open.pop_front(), Some(wr_id), "completions are in posting order");
        if self.has_failed {
            assert_eq!(status, WcStatus::WrFlushErr, "all behind a failure is flushed");
        }
        self.has_failed |= status != WcStatus::Success;
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}
