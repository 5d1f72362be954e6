//! Message channels with an end in another process that is stopped or killed: a writer of a shared
//! ring between its reservation and its message, a receiver, a reader of a read ring.
//!
//! Hosts are over UDP on loopback, and their engines turn on the threads of their ends. Messages
//! are numbered, and each receiver compares all that comes with what has to come: so nothing is
//! lost, doubled or out of order. Nothing is judged by the wall clock: what is waited for is a
//! state.

mod station;

use rma_channel::{
    Claims as _, Outgoing as _, ReceiveError, Receiver as _, SendError, SendHandle, SendState,
    Sender as _, Terms,
    read_ring::{ReadRingConfig, ReaderConfig, inlined_bell},
    ring::RingLen,
    shared_ring::{
        SharedRingConfig,
        immediate::Events,
        receiver::{Finds, SharedReceiver},
        sender::SharedSender,
        with_zeroing::Records,
    },
};
use rma_xdp::OpStatus;

use super::{
    hosts::{Place, Side},
    peer::{Part, Peer, answer, wait_for},
};
use station::{LEN, Orders, READER_TIMEOUT, Station, TIMING, hear, message, number, peer_of};

/// Messages of each sender while nothing is wrong, and afterwards: more than a ring has room for.
const FIRST: u64 = 10;
const THEN: u64 = 100;

/// The fault of the other process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// SIGKILL: nothing of it is left.
    Killed,
    /// SIGSTOP, and later SIGCONT.
    Stopped,
}

impl Fault {
    fn strike(self, peer: &mut Peer) {
        match self {
            Self::Killed => peer.kill(),
            Self::Stopped => peer.stop(),
        }
    }
}

fn ring_config() -> SharedRingConfig {
    let (dispatch_timeout, timeout) = (TIMING.dispatch_timeout, TIMING.timeout);
    SharedRingConfig::new().with(|it| {
        (it.len, it.len_max) = (RingLen::new(4096).unwrap(), LEN as u32);
        (it.dispatch_timeout, it.timeout) = (dispatch_timeout, timeout);
        it.hole_timeout = SharedRingConfig::hole_timeout_min(dispatch_timeout, timeout);
    })
}

fn read_ring_config() -> ReadRingConfig {
    ReadRingConfig::default().with(|it| {
        (it.len, it.len_max) = (RingLen::new(4096).unwrap(), LEN as u32);
        (it.readers, it.reader_timeout) = (2, READER_TIMEOUT);
    })
}

/// A sender's end of a shared ring, and what it has sent.
struct Writer<F: Finds> {
    end: SharedSender<F::Form>,
    index: u64,
    /// How many it is to send.
    wanted: u64,
    sent: Vec<SendHandle>,
    told: Option<SendError>,
}

impl<F: Finds> Writer<F> {
    fn join(station: &Station, terms: &Terms, index: u64) -> Self {
        let end = SharedSender::join(&station.host, terms).unwrap();
        Self { end, index, wanted: 0, sent: Vec::new(), told: None }
    }

    /// Sends what it is to, and takes what became of all. From its first error on nothing.
    fn turn(&mut self, station: &mut Station) {
        let (link, now) = station.link();
        let mut result = self.end.poll(link, now);
        while result.is_ok() && (self.sent.len() as u64) < self.wanted {
            let bytes = message(self.index, self.sent.len() as u64);
            result = self.end.send(link, now, &bytes).map(|handle| self.sent.push(handle));
        }
        match result {
            Ok(()) | Err(SendError::Full) => {}
            Err(error) => _ = self.told.get_or_insert(error),
        }
    }

    fn count(&self, is_it: impl Fn(SendState) -> bool) -> u64 {
        self.sent.iter().filter(|&&sent| is_it(self.end.test(sent))).count() as u64
    }

    /// How many were accepted, as were all before them.
    fn accepted(&self) -> u64 {
        let is_accepted = |state| matches!(state, SendState::Accepted | SendState::Processed);
        self.sent.iter().take_while(|&&sent| is_accepted(self.end.test(sent))).count() as u64
    }
}

/// A shared ring's receiver: of each writer it gets one message after the other.
struct Gatherer<F: Finds> {
    end: SharedReceiver<F>,
    /// By writer: how many have come.
    came: Vec<u64>,
    recoveries: u64,
}

impl<F: Finds> Gatherer<F> {
    fn open(station: &Station, writers: usize) -> Self {
        let end = SharedReceiver::open(&station.host, ring_config()).unwrap();
        Self { end, came: vec![0; writers], recoveries: 0 }
    }

    fn turn(&mut self, station: &mut Station) {
        let (link, now) = station.link();
        self.end.poll(link, now).unwrap();
        let recovered = self.end.poll_recovery(&station.host, now).unwrap();
        self.recoveries += u64::from(recovered.is_some());
        while let Some(message) = self.end.receive().unwrap() {
            let (writer, number) = number(&message);
            let came = &mut self.came[writer as usize];
            assert_eq!(number, *came, "of writer {writer}");
            *came += 1;
        }
    }
}

// The writer.

/// The other process: a writer that reserves, and looks no more until it is told to.
fn play_the_writer<F: Finds>(part: &Part) {
    let (mut station, mut orders) = (Station::of(part), Orders::new());
    let terms = orders.terms(&mut station);
    let mut writer = Writer::<F>::join(&station, &terms, 0);
    let mut looks = true;
    loop {
        station.turn();
        if looks {
            writer.turn(&mut station);
        }
        match orders.next().as_deref() {
            None => {}
            Some("send") => writer.wanted += FIRST,
            Some("reserve") => {
                // With nothing else under way.
                while writer.count(|state| state != SendState::Processed) > 0 {
                    station.turn();
                    writer.turn(&mut station);
                }
                // Till its FETCH_ADD is over; that it is, the writer does not know.
                let before = station.completed(OpStatus::Ok);
                writer.wanted += 1;
                writer.turn(&mut station);
                looks = false;
                while station.completed(OpStatus::Ok) == before {
                    station.turn();
                }
                answer("reserved");
            }
            Some("look") => looks = true,
            Some("told") => {
                let refused = station.completed(OpStatus::RemoteAuthenticationFailure);
                answer(&format!("told {} {refused}", writer.accepted()));
            }
            Some(other) => panic!("{other}"),
        }
    }
}

/// Two others go on whatever becomes of a third between its reservation and its message; and what
/// it writes when it goes on itself changes nothing: it is told, and sends the message again.
fn strike_a_writer<F: Finds>(name: &str, place: &Place, fault: Fault) {
    let mut child = Peer::start(place, name, Side::Initiator, 0);
    let (mut home, mut near) = (Station::at_home(place), Station::third(place));
    let mut ring = Gatherer::<F>::open(&home, 3);
    let mut admit = |peer| ring.end.admit(&home.host, peer).expect("a grant for each epoch");
    let terms = admit(peer_of(place, Side::Initiator));
    let others = [1, 2].map(|index| (index, admit(near.peer())));
    child.order(&station::words("terms", &terms));
    let mut writers = others.map(|(index, terms)| Writer::<F>::join(&near, &terms, index));
    let mut until = |what: &str,
                     ring: &mut Gatherer<F>,
                     writers: &mut [Writer<F>; 2],
                     is_so: &mut dyn FnMut(&Gatherer<F>) -> bool| {
        wait_for(what, || {
            home.turn();
            near.turn();
            ring.turn(&mut home);
            for writer in writers.iter_mut() {
                writer.turn(&mut near);
                assert!(writer.told.is_none(), "a living writer: {:?}", writer.told);
            }
            is_so(ring)
        });
    };
    child.order("send");
    writers.iter_mut().for_each(|writer| writer.wanted += FIRST);
    until("all send", &mut ring, &mut writers, &mut |ring| ring.came == [FIRST; 3]);
    child.order("reserve");
    until("it reserves", &mut ring, &mut writers, &mut |_| {
        child.try_hear().is_some_and(|words| words == ["reserved"])
    });
    assert!(ring.end.unfilled() > 0, "a hole");
    fault.strike(&mut child);
    writers.iter_mut().for_each(|writer| writer.wanted += THEN);
    let all = FIRST + THEN;
    until("others go on", &mut ring, &mut writers, &mut |ring| ring.came == [FIRST, all, all]);
    assert!(ring.recoveries > 0, "its place was taken back");
    if fault == Fault::Stopped {
        child.go_on();
        child.order("look");
        until("it goes on", &mut ring, &mut writers, &mut |ring| {
            ring.came == [FIRST + 1, all, all]
        });
        child.order("send");
        writers.iter_mut().for_each(|writer| writer.wanted += FIRST);
        let all = all + FIRST;
        until("all go on", &mut ring, &mut writers, &mut |ring| {
            ring.came == [2 * FIRST + 1, all, all]
        });
        child.order("told");
        let mut told = None;
        until("it is told", &mut ring, &mut writers, &mut |_| {
            told = child.try_hear();
            told.is_some()
        });
        let told: Vec<u64> = told.unwrap()[1..].iter().map(|it| it.parse().unwrap()).collect();
        assert!(told[0] <= 2 * FIRST + 1 && told[1] > 0, "{told:?}: refused under the old key");
    }
}

// The receiver.

/// The other process: a receiver of a shared ring.
fn play_the_receiver<F: Finds>(part: &Part) {
    let (mut station, mut orders) = (Station::of(part), Orders::new());
    let mut ring = Gatherer::<F>::open(&station, 1);
    let peer = peer_of_network(part);
    let terms = ring.end.admit(&station.host, peer).unwrap();
    answer(&station::words("terms", &terms));
    loop {
        station.turn();
        ring.turn(&mut station);
        match orders.next().as_deref() {
            None => {}
            Some("came") => answer(&format!("came {}", ring.came[0])),
            Some(other) => panic!("{other}"),
        }
    }
}

/// Returns the peer that a receiver in another process lets in.
const fn peer_of_network(part: &Part) -> rma_channel::Peer {
    station::peer_in(part.network, Side::Initiator)
}

/// Checks that a sender to a receiver that is gone learns the first message that was not delivered;
/// and of those that were accepted none is lost if the receiver goes on.
fn strike_a_receiver<F: Finds>(name: &str, place: &Place, fault: Fault) {
    let mut child = Peer::start(place, name, Side::Target, 0);
    let mut here = Station::open(place, Side::Initiator);
    let terms = hear(&child, "terms");
    let mut writer = Writer::<F>::join(&here, &terms, 0);
    let mut until = |what: &str, writer: &mut Writer<F>, is_so: fn(&Writer<F>) -> bool| {
        wait_for(what, || {
            here.turn();
            writer.turn(&mut here);
            is_so(writer)
        });
    };
    writer.wanted = FIRST;
    until("all is processed", &mut writer, |it| {
        it.count(|state| state == SendState::Processed) == FIRST
    });
    fault.strike(&mut child);
    writer.wanted += THEN;
    until("the writer is told", &mut writer, |it| it.told.is_some());
    until("all is over", &mut writer, |it| it.count(|state| state == SendState::Sending) == 0);
    let (accepted, sent) = (writer.accepted(), writer.sent.len() as u64);
    assert!((FIRST..sent).contains(&accepted), "{accepted} of {sent}");
    if let Some(SendError::Broken { handle, status }) = writer.told {
        assert!(writer.sent[accepted as usize..].contains(&handle), "{handle}: {accepted}");
        assert_eq!(writer.end.test(handle), SendState::Failed(status));
    } else {
        panic!("{:?}", writer.told);
    }
    if fault == Fault::Stopped {
        child.go_on();
        child.order("came");
        let [came] = child.hear("came").try_into().unwrap();
        // Of one that is unknown it may be that it was delivered.
        assert!((accepted..=sent).contains(&came), "{came} came, {accepted} were accepted");
    }
}

// The reader.

/// A receiver of a read ring: it gets one message after the other.
struct Reader {
    end: inlined_bell::Receiver,
    came: u64,
    ended: Option<ReceiveError>,
}

impl Reader {
    fn join(station: &Station, terms: &Terms) -> Self {
        let config = ReaderConfig::new();
        let end = inlined_bell::Receiver::join(&station.host, config, terms).unwrap();
        Self { end, came: 0, ended: None }
    }

    fn turn(&mut self, station: &mut Station) {
        let (link, now) = station.link();
        let received = self.end.poll(link, now).and_then(|()| {
            while let Some(message) = self.end.receive()? {
                assert_eq!(number(&message), (0, self.came));
                self.came += 1;
            }
            Ok(())
        });
        if let Err(error) = received {
            self.ended.get_or_insert(error);
        }
    }
}

/// The other process: a reader of a read ring.
fn play_the_reader(part: &Part) {
    let (mut station, mut orders) = (Station::of(part), Orders::new());
    let terms = orders.terms(&mut station);
    let mut reader = Reader::join(&station, &terms);
    loop {
        station.turn();
        reader.turn(&mut station);
        match orders.next().as_deref() {
            None => {}
            Some("came") => {
                let is_ejected = matches!(reader.ended, Some(ReceiveError::Ejected { .. }));
                answer(&format!("came {} {}", reader.came, u64::from(is_ejected)));
            }
            Some(other) => panic!("{other}"),
        }
    }
}

/// A reader that stops holds up nobody for longer than it counts: it is ejected, the other one gets
/// all; and when it goes on it is told.
fn strike_a_reader(name: &str, place: &Place, fault: Fault) {
    let mut child = Peer::start(place, name, Side::Initiator, 0);
    let (mut home, mut near) = (Station::at_home(place), Station::third(place));
    let mut ring = inlined_bell::Sender::open(&home.host, read_ring_config()).unwrap();
    let mut admit = |peer| ring.admit(&home.host, peer).unwrap();
    let [terms, other] = [peer_of(place, Side::Initiator), near.peer()].map(&mut admit);
    child.order(&station::words("terms", &terms));
    let mut reader = Reader::join(&near, &other);
    let mut sent = Vec::new();
    let mut until =
        |what: &str,
         wanted: u64,
         reader: &mut Reader,
         is_so: &mut dyn FnMut(&inlined_bell::Sender, &[SendHandle]) -> bool| {
            wait_for(what, || {
                home.turn();
                near.turn();
                let (link, now) = home.link();
                ring.poll(link, now).unwrap();
                while (sent.len() as u64) < wanted {
                    match ring.send(link, now, &message(0, sent.len() as u64)) {
                        Ok(handle) => sent.push(handle),
                        Err(SendError::Full) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                reader.turn(&mut near);
                assert!(reader.ended.is_none(), "the living reader: {:?}", reader.ended);
                is_so(&ring, &sent)
            });
        };
    // Both count, and have processed all.
    until("both read", FIRST, &mut reader, &mut |ring, sent| {
        let is_processed = |&sent: &SendHandle| ring.test(sent) == SendState::Processed;
        sent.len() as u64 == FIRST && sent.iter().all(is_processed)
    });
    assert_eq!(reader.came, FIRST);
    fault.strike(&mut child);
    let all = FIRST + THEN;
    until("it is ejected", all, &mut reader, &mut |ring, sent| {
        sent.last().is_some_and(|&last| ring.test(last) == SendState::Processed)
            && sent.len() as u64 == all
    });
    assert_eq!(reader.came, all);
    if fault == Fault::Stopped {
        child.go_on();
        let mut told = None;
        child.order("came");
        until("it is told", all, &mut reader, &mut |_, _| {
            match child.try_hear() {
                // It has not found out yet.
                Some(words) if words[2] == "0" => child.order("came"),
                words => told = words,
            }
            told.is_some()
        });
        let came: u64 = told.unwrap()[1].parse().unwrap();
        assert!((FIRST..all).contains(&came), "{came} came to the reader that was ejected");
    }
}

/// Runs `test` called `name`; or `play`, if this process is the other one.
fn run(name: &str, play: fn(&Part), test: impl FnOnce(&str, &Place)) {
    let name = format!("channels::{name}");
    match Part::of_this_process() {
        Some(part) => play(&part),
        None => test(&name, &Place::loopback()),
    }
}

/// A test for each way in which records of shared rings are found, and each fault.
macro_rules! with_each_form {
    ($($name:ident: $play:ident, $test:ident, $form:ident, $fault:ident;)+) => {
        $(#[test] fn $name() {
            run(stringify!($name), $play::<$form>, |name, place| {
                $test::<$form>(name, place, Fault::$fault);
            });
        })+
    };
}

with_each_form! {
    others_go_on_when_a_writer_of_events_is_killed:
        play_the_writer, strike_a_writer, Events, Killed;
    others_go_on_when_a_writer_of_records_is_killed:
        play_the_writer, strike_a_writer, Records, Killed;
    a_writer_of_events_that_is_stopped_changes_nothing_when_it_goes_on:
        play_the_writer, strike_a_writer, Events, Stopped;
    a_writer_of_records_that_is_stopped_changes_nothing_when_it_goes_on:
        play_the_writer, strike_a_writer, Records, Stopped;
    who_sends_to_a_killed_receiver_is_told:
        play_the_receiver, strike_a_receiver, Records, Killed;
    who_sends_events_to_a_stopped_receiver_is_told:
        play_the_receiver, strike_a_receiver, Events, Stopped;
    who_sends_records_to_a_stopped_receiver_is_told:
        play_the_receiver, strike_a_receiver, Records, Stopped;
}

#[test]
fn others_read_on_when_a_reader_is_killed() {
    run("others_read_on_when_a_reader_is_killed", play_the_reader, |name, place| {
        strike_a_reader(name, place, Fault::Killed);
    });
}

#[test]
fn a_reader_that_was_stopped_is_ejected_and_told_when_it_goes_on() {
    let name = "a_reader_that_was_stopped_is_ejected_and_told_when_it_goes_on";
    run(name, play_the_reader, |name, place| strike_a_reader(name, place, Fault::Stopped));
}
