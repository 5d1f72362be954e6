//! Streams through a channel, and what must hold after every event.
//!
//! - What a receiver claims is the next message of a sender, whole; messages that it passes by are
//!   those that their sender is told have failed. So nothing comes twice, late, torn or from
//!   nobody.
//! - It stays what it is until it is given back.
//! - What its sender knows of a message never goes back. One that it takes for *accepted* a
//!   receiver that looks has seen, unless it is behind one that failed or is under way; one that it
//!   takes for *processed* was given back, by all receivers; one that it takes for *failed* never
//!   comes, unless that is *unknown*.
//! - Where messages of all senders lie in one order, that of their places, they come in it, until a
//!   recovery; and one that is accepted may wait, in the receiver's memory, for another's that is
//!   not there.

use rma_channel::{ReceiveError, SendError, SendState};
use rma_core::{executor::CallStatus, time::Instant};
use rma_sim::{net::frame::NodeId, prng::Prng};

use super::{
    end::Taken,
    hosts::Driven,
    kinds::{Row, Settings},
    stream::{Habit, Held, Lens, Reader, Sent, Stream},
};

/// A channel, and what goes through it.
#[derive(Debug)]
pub struct Run<W> {
    /// The run's description in failures.
    pub about: String,
    /// The hosts.
    pub world: W,
    /// The senders, with their messages.
    pub streams: Vec<Stream>,
    /// The receivers, with what they hold.
    pub readers: Vec<Reader>,
    /// Whether messages are accepted before anybody has read them.
    is_read: bool,
    /// Whether senders are told what is processed.
    is_told: bool,
    /// Whether messages of all senders come in the order of their places.
    has_places: bool,
    /// Whether each receiver has one sender, in their order.
    is_duplex: bool,
    /// How many events there were.
    pub steps: u64,
    /// At which step a sender or a receiver has learnt something, or a channel was opened.
    pub news_at: u64,
}

impl<W: Driven> Run<W> {
    /// A channel of a kind, with nothing to send.
    pub fn new(row: &Row, world: W, settings: &Settings) -> Self {
        let about = format!("{} ({}): {world}; {settings:?}", row.kind, row.kind as u8);
        let mut run = Self {
            about,
            world,
            streams: Vec::new(),
            readers: Vec::new(),
            is_read: row.into.is_some(),
            is_told: row.is_told,
            has_places: row.has_places,
            is_duplex: row.is_duplex,
            steps: 0,
            news_at: 0,
        };
        run.open(row, settings, Lens::All(row.shortest), 0);
        run
    }

    /// A channel anew, in place of the one before: each sender sends so many messages.
    pub fn open(&mut self, row: &Row, settings: &Settings, lens: Lens, count: u64) {
        self.close();
        self.news_at = self.steps;
        let ends = (row.open)(&mut self.world, row.kind, settings);
        assert_eq!(ends.senders.len(), settings.senders.len(), "{}", self.about);
        let prng = Prng::new(self.world.seed()).fork(self.steps);
        let streams =
            ends.senders.into_iter().zip(0..).map(|((node, end), number)| {
                Stream::new(node, end, prng.fork(number), lens, count)
            });
        self.streams = streams.collect();
        self.streams.iter_mut().for_each(|stream| stream.is_marked = row.has_places);
        let count = self.streams.len();
        let readers = ends.receivers.into_iter();
        self.readers = readers.map(|(node, end)| Reader::new(node, end, count)).collect();
    }

    /// Closes the ends that are there.
    pub fn close(&mut self) {
        for Stream { node, end, .. } in self.streams.drain(..) {
            end.into_iter().for_each(|mut end| {
                end.registered().give_back(&*self.world.gate(node)).unwrap();
            });
        }
        for Reader { node, end, .. } in self.readers.drain(..) {
            end.into_iter().for_each(|mut end| end.close(&*self.world.gate(node)));
        }
    }

    /// All receivers behave like this from now on.
    pub fn set_habit(&mut self, habit: Habit) {
        self.readers.iter_mut().for_each(|reader| reader.habit = habit);
    }

    /// Panics, and says what the run was about.
    pub fn fail(&self, what: &str) -> ! {
        let now = self.world.now().as_nanos();
        panic!("{}\nat {now} ns: {what}", self.about)
    }

    /// Runs until all that is sent is over: processed, or failed; or the channel is broken.
    pub fn finish(&mut self) {
        self.look();
        while !self.is_over() || self.is_read && self.lags() {
            self.step();
        }
    }

    /// Whether a reader has neither got all nor ended: if it was given up it has to find out.
    fn lags(&self) -> bool {
        let lacks = |reader: &Reader| {
            let sent = self.streams.iter().map(|stream| stream.sent.len());
            reader.end.is_some() && reader.ended.is_none() && !reader.next.iter().copied().eq(sent)
        };
        self.readers.iter().any(lacks)
    }

    /// Whether all that was sent is over, and nothing is to be sent; or nobody is left to hear it.
    pub fn is_over(&self) -> bool {
        let is_known =
            |sent: &Sent| self.is_done(sent) || matches!(sent.state, SendState::Failed(_));
        let is_over = |stream: &Stream| {
            let hears = stream.broken.is_none() && stream.end.is_some();
            !hears || stream.is_over() && stream.sent.iter().all(is_known)
        };
        let hears_nothing = |reader: &Reader| reader.ended.is_some();
        self.streams.iter().all(is_over) || self.readers.iter().all(hears_nothing)
    }

    /// Whether a message came, and its sender knows as much of it as it ever will.
    pub fn is_done(&self, sent: &Sent) -> bool {
        match sent.state {
            SendState::Processed => true,
            SendState::Accepted => !self.is_told && sent.freed == self.readers.len(),
            SendState::Sending | SendState::Failed(_) => false,
        }
    }

    /// Does what comes next; then all ends look.
    pub fn step(&mut self) {
        self.step_until(None);
    }

    /// The same, at `until` at the latest.
    pub fn step_until(&mut self, until: Option<Instant>) {
        self.steps += 1;
        if self.steps > self.news_at + W::IDLE_STEPS_MAX {
            self.fail(&format!("it does not come to an end: {:#?}", self.streams));
        }
        let wake = self.wake_at().into_iter().chain(until).min();
        self.world.step(wake);
        self.look();
    }

    /// When an end of a node that runs wants to look again.
    fn wake_at(&self) -> Option<Instant> {
        let senders = self.streams.iter().filter_map(|it| Some((it.node, it.wake_at()?)));
        let receivers = self.readers.iter().filter_map(|it| {
            Some((it.node, it.end.as_ref().filter(|_| it.ended.is_none())?.wake_at()?))
        });
        let ends = senders.chain(receivers);
        ends.filter_map(|(node, local)| self.world.wake_at(node, local)).min()
    }

    /// All ends of nodes that run look, and their applications do what they want to.
    pub fn look(&mut self) {
        for node in (0..self.world.nodes()).map(NodeId) {
            if self.world.is_running(node) {
                self.look_at(node);
            }
        }
        for index in 0..self.streams.len() {
            self.check_states(index);
        }
    }

    fn look_at(&mut self, node: NodeId) {
        loop {
            let (link, now) = self.world.link(node);
            link.poll(now);
            let mut acted = false;
            for index in 0..self.streams.len() {
                if self.streams[index].node == node {
                    acted |= self.tend_sender(index);
                }
            }
            for index in 0..self.readers.len() {
                if self.readers[index].node == node {
                    acted |= self.tend_receiver(index);
                }
            }
            let (link, now) = self.world.link(node);
            link.poll(now);
            let taken = self.world.take_commands(node);
            if !acted && taken == 0 {
                break;
            }
        }
        self.check_wakes(node);
    }

    /// No end that has just looked wants to look again at once: it would never sleep.
    fn check_wakes(&mut self, node: NodeId) {
        if !W::STANDS_STILL {
            return;
        }
        let (_, now) = self.world.link(node);
        let senders = self.streams.iter().filter(|it| it.node == node);
        let senders = senders.filter_map(Stream::wake_at);
        let readers = self.readers.iter().filter(|it| it.node == node && it.ended.is_none());
        let readers = readers.filter_map(|it| it.end.as_ref()?.wake_at());
        if senders.chain(readers).any(|at| at <= now) {
            self.fail(&format!("an end has looked, and still wants to: {:#?}", self.streams));
        }
    }

    /// A sender looks, and sends what it can. Returns whether anything was sent.
    fn tend_sender(&mut self, index: usize) -> bool {
        let stream = &mut self.streams[index];
        let Some(end) = stream.end.as_mut().filter(|_| !stream.is_asleep) else { return false };
        let (link, now) = self.world.link(stream.node);
        if let Err(error) = end.poll(link, now) {
            stream.broken.get_or_insert(error);
            if let SendError::Malformed(error) = error {
                self.fail(&format!("sender {index}: {error}"));
            }
        }
        let stream = &mut self.streams[index];
        let before = stream.sent.len();
        while !stream.is_over() {
            let bytes = stream.draw();
            let Some(end) = &mut stream.end else { break };
            match end.send(link, now, &bytes) {
                Ok(handle) => {
                    let (state, skipped) = (SendState::Sending, false);
                    let sent = Sent { handle, bytes, state, claimed: 0, freed: 0, skipped };
                    stream.sent.push(sent);
                    stream.left -= 1;
                }
                Err(SendError::Full) => {
                    stream.full += 1;
                    break;
                }
                Err(error) => stream.broken = Some(error),
            }
        }
        stream.sent.len() > before
    }

    /// A receiver looks, takes what it wants, and gives some of it back. Returns whether it did.
    fn tend_receiver(&mut self, index: usize) -> bool {
        let reader = &mut self.readers[index];
        reader.looks += 1;
        let node = reader.node;
        let Some(end) = &mut reader.end else { return false };
        let (link, now) = self.world.link(node);
        let polled = end.poll(link, now);
        let recovered = polled.and_then(|()| end.recover(&*self.world.gate(node), now));
        match recovered {
            Ok(recovered) => reader.recoveries += u64::from(recovered),
            Err(error) => self.end(index, error),
        }
        let mut taken = 0;
        while self.readers[index].ended.is_none() && self.readers[index].wants(taken) {
            let reader = &mut self.readers[index];
            let Some(end) = &mut reader.end else { break };
            match end.take() {
                Ok(Some(taken)) => self.claimed(index, taken),
                Ok(None) => break,
                Err(error) => {
                    self.end(index, error);
                    break;
                }
            }
            taken += 1;
            self.give_back_due(index);
        }
        let reader = &mut self.readers[index];
        reader.idle = if taken > 0 { 0 } else { reader.idle + 1 };
        let held = reader.held.len();
        self.give_back_due(index);
        let reader = &mut self.readers[index];
        let acted = taken > 0 || reader.held.len() < held;
        if acted {
            let (link, now) = self.world.link(node);
            if let Some(Err(error)) = reader.end.as_mut().map(|end| end.poll(link, now)) {
                self.end(index, error);
            }
        }
        acted
    }

    /// A receiver is told that no more comes. All are honest here, so nothing can be malformed.
    fn end(&mut self, index: usize, error: ReceiveError) {
        if let ReceiveError::Malformed(error) = error {
            self.fail(&format!("receiver {index}: {error}"));
        }
        self.readers[index].ended.get_or_insert(error);
    }

    fn give_back_due(&mut self, index: usize) {
        while let Some(which) = self.readers[index].due() {
            self.give_back(index, which);
        }
    }

    /// A receiver gives back a message that it holds, which has not changed.
    pub fn give_back(&mut self, index: usize, which: usize) {
        let Held { taken, stream, number } = self.readers[index].held.remove(which);
        let bytes = self.bytes_of(index, &taken);
        if bytes != self.streams[stream].sent[number].bytes {
            self.fail(&format!(
                "message {number} of sender {stream} has changed while it was held"
            ));
        }
        self.streams[stream].sent[number].freed += 1;
        if let Some(end) = &mut self.readers[index].end {
            end.free(taken);
        }
    }

    /// Returns the bytes of a message, read in two parts.
    fn bytes_of(&self, index: usize, taken: &Taken) -> Vec<u8> {
        let end = self.readers[index].end.as_ref().unwrap();
        let mut bytes = vec![0; taken.len()];
        let half = taken.len() / 2;
        let (first, second) = bytes.split_at_mut(half);
        let read = end.read(taken, 0, first) + end.read(taken, half, second);
        if read != taken.len() {
            self.fail(&format!("of a message of {} bytes {read} can be read", taken.len()));
        }
        bytes
    }

    /// A receiver has claimed a message: whose is it?
    fn claimed(&mut self, index: usize, taken: Taken) {
        self.news_at = self.steps;
        let bytes = self.bytes_of(index, &taken);
        let Self { streams, readers, world, has_places, .. } = &mut *self;
        let reader = &mut readers[index];
        // A message that waited for one sent again comes after it, from a place before it.
        let position = taken.position();
        let goes_back = position.is_some() && reader.newest >= position;
        reader.newest = position;
        let may_be =
            |stream: &Stream| taken.sender().is_none_or(|peer| peer == world.peer(stream.node));
        // The next one of a sender; or one behind those that must turn out to have failed.
        let candidates = (0..streams.len()).filter(|&it| may_be(&streams[it]));
        let found = candidates.filter_map(|it| {
            let next = reader.next[it];
            let behind = streams[it].sent.iter().skip(next).position(|sent| sent.bytes == bytes)?;
            Some((behind, it))
        });
        let found = found.min();
        if *has_places && goes_back && reader.recoveries == 0 {
            self.fail(&format!("a message at {position:?} comes after one behind it"));
        }
        let Some((behind, stream)) = found else {
            let is_old = streams.iter().any(|it| it.sent.iter().any(|sent| sent.bytes == bytes));
            let what = if is_old { "twice" } else { "and was never sent like that" };
            let (len, from) = (taken.len(), taken.sender());
            self.fail(&format!("a message of {len} bytes from {from:?} comes {what}"))
        };
        let next = reader.next[stream];
        let number = next + behind;
        reader.next[stream] = number + 1;
        reader.held.push(Held { taken, stream, number });
        let sent = &mut streams[stream].sent;
        sent[next..number].iter_mut().for_each(|sent| sent.skipped = true);
        sent[number].claimed += 1;
        if sent[number].is_unpublished() {
            let state = sent[number].state;
            self.fail(&format!("message {number} of sender {stream} comes after {state:?}"));
        }
    }

    /// Asks a sender for the states of its messages.
    fn check_states(&mut self, index: usize) {
        let Some(end) = &self.streams[index].end else { return };
        let first = self.streams[index].open;
        let states: Vec<_> =
            self.streams[index].sent[first..].iter().map(|sent| end.test(sent.handle)).collect();
        let mut has_hole = self.streams[index].sent[..first].iter().any(|sent| sent.skipped);
        for (number, state) in (first..).zip(states) {
            let sent = &self.streams[index].sent[number];
            let before = sent.state;
            let unknown = SendState::Failed(CallStatus::Unknown);
            let may_follow = match before {
                SendState::Sending => true,
                SendState::Accepted => matches!(state, SendState::Accepted | SendState::Processed),
                SendState::Processed => state == before,
                // Once it is known to have come.
                SendState::Failed(_) => {
                    state == before || before == unknown && state == SendState::Processed
                }
            };
            let name = format!("message {number} of sender {index}");
            if !may_follow {
                self.fail(&format!("{name} was {before:?} and is {state:?}"));
            }
            let (claimed, freed) = (sent.claimed, sent.freed);
            has_hole |= sent.skipped || matches!(state, SendState::Failed(_) | SendState::Sending);
            match state {
                SendState::Sending => {}
                SendState::Accepted => {
                    if !self.is_read && !has_hole && !self.has_come_to_all(index, number) {
                        self.check_waits(&name);
                    }
                }
                SendState::Processed => {
                    let readers = self.readers_of(index);
                    let counted = readers.filter(|it| it.ended.is_none()).count();
                    // A reader may have been given up, and finds that out by itself. And what a
                    // recovery has copied is processed for its sender.
                    let is_copied = self.readers.iter().any(|it| it.recoveries > 0);
                    let is_early = freed < counted && !is_copied;
                    if !self.is_read && is_early || sent.skipped {
                        self.fail(&format!("{name} is processed, and {freed} gave it back"));
                    }
                }
                SendState::Failed(_) => {
                    if claimed > 0 && state != unknown {
                        self.fail(&format!("{name} has come, and is {state:?}"));
                    }
                }
            }
            if state != before {
                self.news_at = self.steps;
            }
            self.streams[index].sent[number].state = state;
            if self.is_done(&self.streams[index].sent[number]) && self.streams[index].open == number
            {
                self.streams[index].open += 1;
            }
        }
    }

    /// A message is accepted, all of its sender's before it are, and it has not come. If messages
    /// come in the order of their places, it may wait for another sender's: then something is
    /// reserved and not there besides all that waits.
    fn check_waits(&self, name: &str) {
        let waits = |reader: &Reader| {
            let waiting = self.streams.iter().zip(&reader.next).map(|(stream, &next)| {
                let sent = stream.sent[next..].iter();
                let sent = sent.take_while(|sent| sent.state == SendState::Accepted);
                sent.map(|sent| (sent.bytes.len() as u64 + 16).next_multiple_of(64)).sum::<u64>()
            });
            // Of what a recovery has copied the receiver alone knows where it is.
            let least = if reader.recoveries == 0 { waiting.sum() } else { 0 };
            reader.end.as_ref().is_some_and(|end| end.unfilled() > least)
        };
        if !self.has_places || !self.readers.iter().all(waits) {
            self.fail(&format!("{name} is accepted, and is not there"));
        }
    }

    /// Whether all receivers that take whatever comes, and have just looked, have got a message.
    fn has_come_to_all(&self, stream: usize, number: usize) -> bool {
        self.readers_of(stream).all(|reader| {
            let looks = matches!(reader.habit, Habit::Prompt | Habit::Holding(_) | Habit::Hoarding)
                && reader.ended.is_none()
                && reader.end.is_some()
                && self.world.is_running(reader.node);
            !looks || reader.next[stream] > number
        })
    }

    /// The receivers that a sender's messages come to.
    fn readers_of(&self, stream: usize) -> impl Iterator<Item = &Reader> {
        let is_of = move |&(index, _): &(usize, &Reader)| !self.is_duplex || index == stream;
        self.readers.iter().enumerate().filter(is_of).map(|(_, reader)| reader)
    }

    /// Checks what must be so when nothing more will come.
    pub fn check_end(&self) {
        let streams = self.streams.iter().enumerate();
        for (index, stream) in streams.filter(|(_, stream)| stream.end.is_some()) {
            for (number, sent) in stream.sent.iter().enumerate() {
                let is_failed = matches!(sent.state, SendState::Failed(_));
                if sent.skipped && !is_failed {
                    let state = sent.state;
                    self.fail(&format!(
                        "message {number} of sender {index} is lost, and {state:?}"
                    ));
                }
            }
        }
    }

    /// Checks that all messages came, to all receivers.
    pub fn check_all_came(&self) {
        self.check_all_came_but(None);
    }

    /// The same, of all senders but one.
    pub fn check_all_came_but(&self, but: Option<usize>) {
        self.check_end();
        let streams = self.streams.iter().enumerate();
        for (index, stream) in streams.filter(|&(index, _)| Some(index) != but) {
            let count = stream.sent.len();
            if let Some(error) = &stream.broken {
                self.fail(&format!("sender {index} is broken after {count} messages: {error}"));
            }
            if stream.left > 0 || stream.open < count {
                let (open, left) = (stream.open, stream.left);
                self.fail(&format!("sender {index}: {open} of {count} came, {left} are left"));
            }
        }
        if let Some(error) = self.readers.iter().find_map(|reader| reader.ended) {
            self.fail(&format!("a receiver has ended: {error}"));
        }
    }
}
