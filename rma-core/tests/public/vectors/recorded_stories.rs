//! The recorded ops and the SETTLEs whose frames are golden vectors: each op, each way in which it
//! is acknowledged, and each verdict.

use rma_core::{
    command::{Command, CommandOp, CommandSlotId, RecordedOp, Transfer},
    crypto::RegionKey,
    op::{ClassOfService, OpStatus, OpType},
    outcome::{Done, OpName, Verdict},
    receive_queue::Receive,
    wire::FrameView,
};

use crate::vectors::{
    Key, NOW, SLOT, Sent, Vectors, contents, region_key,
    stories::{reserved, wrong},
};

/// The integer in a word that is no content of the region: an integer, whatever the host's byte
/// order.
const WORD: u64 = 0x2122_2324_2526_2728;
const WORD_AT: u64 = 2048;
const ADDEND: u64 = 0x0101_0101_0101_0101;
const IMMEDIATE: u64 = 0xa1a2_a3a4_a5a6_a7a8;
const FETCH_ADD: RecordedOp = RecordedOp::FetchAdd { remote_offset: WORD_AT, addend: ADDEND };

impl Vectors {
    pub(crate) fn recorded(&mut self, write: &Key) {
        self.words_memory.store_release(WORD_AT, WORD).expect("a word");
        self.ordered_writes(write);
        let send = self.key("SEND", region_key(), OpType::Send);
        let with_imm = self.key("WRITE_WITH_IMM", region_key(), OpType::WriteWithImm);
        let notify = self.key("NOTIFY", region_key(), OpType::Notify);
        let swap = self.key("COMPARE_SWAP", region_key(), OpType::CompareSwap);
        let add = self.key("FETCH_ADD", region_key(), OpType::FetchAdd);
        self.messages(&send);
        self.events(&with_imm, &notify);
        self.one_receive_for_two(&notify);
        let name = self.atomics(&swap, &add);
        self.settles(&add, name);
    }

    /// A recorded op on the region of words, or on the queue.
    fn op(&self, op: RecordedOp, done: Option<Done>) -> Command {
        let is_to_queue = matches!(op, RecordedOp::Send { .. } | RecordedOp::Notify { .. });
        let remote_region = if is_to_queue { self.queue.id() } else { self.words };
        Command { remote_region, ..self.command(CommandOp::Recorded { op, done }) }
    }

    /// Bytes that begin at offset 200 of the local region.
    fn bytes(&self, remote_offset: u64, op_size: u32) -> Transfer {
        Transfer { local_offset: 200, ..self.transfer(remote_offset, op_size) }
    }

    /// The request of a recorded op, whose payload is its immediate.
    fn ask_for(&mut self, what: &str, key: &Key, command: Command, immediate: u64) -> Sent {
        let command = Command { key: key.key, ..command };
        self.initiator.handle_command(NOW, command).expect("the slot is free");
        let name = format!("recorded request of {what}");
        self.ask(&name, key, None, &immediate.to_be_bytes())
    }

    //= channels#2.1-four-hops
    //= type=test
    /// Request and solicitation.
    fn begin(&mut self, what: &str, key: &Key, command: Command, immediate: u64) -> Sent {
        let request = self.ask_for(what, key, command, immediate);
        self.serve(&request);
        self.answer(&format!("solicitation of {what}"), key, &request, &[])
    }

    //= channels#P3-solicited
    //= type=test
    /// All data of an op.
    fn send_data(&mut self, what: &str, key: &Key, solicitation: &Sent, data: &[u8]) {
        for (index, part) in data.chunks(64).enumerate() {
            let name = match (index, data.len() <= 64) {
                (_, true) => format!("solicited data of {what}"),
                (index, false) => format!("solicited data of {what}, part {}", index + 1),
            };
            let data = self.ask(&name, key, Some(solicitation), part);
            self.serve(&data);
        }
    }

    /// A whole op without a result that is applied.
    fn applied(&mut self, what: &str, key: &Key, command: Command, (imm, data): (u64, &[u8])) {
        let solicitation = self.begin(what, key, command, imm);
        self.send_data(what, key, &solicitation, data);
        self.answer(&format!("acknowledgement of {what}"), key, &solicitation, &[]);
        self.completes_with(OpStatus::Ok);
    }

    fn ordered_writes(&mut self, own: &Key) {
        let op = RecordedOp::OrderedWrite(self.bytes(1000, 136));
        let command = Command { class: ClassOfService::Throughput, ..self.op(op, None) };
        self.applied("an ordered WRITE", own, command, (0, &contents(200..336)));
        let mut written = [0; 136];
        self.words_memory.copy_out(1000, &mut written).expect("in bounds");
        assert_eq!(written, *contents(200..336));

        //= channels#2.1-all-or-nothing
        //= type=test
        let what = "an ordered WRITE while the region is rekeyed";
        let command = self.op(RecordedOp::OrderedWrite(self.bytes(3000, 8)), None);
        let solicitation = self.begin(what, own, command, 0);
        let key = RegionKey::from_bytes(region_key());
        self.responder.regions_mut().rekey(self.words, &key).expect("it is registered");
        self.send_data(what, own, &solicitation, &contents(200..208));
        let name = "acknowledgement of an ordered WRITE that was not applied";
        self.answer(name, own, &solicitation, &[]);
        let completion = self.completion();
        assert_eq!(completion.status, OpStatus::RemoteAuthenticationFailure);
        assert!(!completion.may_have_changed());
    }

    fn messages(&mut self, own: &Key) {
        let send = |vectors: &Self, size| RecordedOp::Send {
            message: vectors.bytes(0, size),
            immediate: IMMEDIATE,
        };
        let command = self.op(send(self, 100), None);
        let what = "a SEND that finds no receive";
        let request = self.ask_for(what, own, command, IMMEDIATE);
        self.serve(&request);
        self.answer("REMOTE_NOT_READY", own, &request, &[]);
        self.completes_with(OpStatus::RemoteNotReady);

        self.queue.post(Receive(3)).expect("it has so many");
        self.applied("a SEND", own, command, (IMMEDIATE, &contents(200..300)));
        let event = self.queue.poll().expect("an event");
        assert_eq!((event.receive, event.len, event.immediate), (Receive(3), 100, IMMEDIATE));

        self.queue.post(Receive(3)).expect("it was consumed");
        let what = "a SEND that is longer than a buffer";
        let command = self.op(send(self, 129), None);
        let request = self.ask_for(what, own, command, IMMEDIATE);
        self.serve(&request);
        self.answer("REMOTE_OUT_OF_BOUNDS to a SEND", own, &request, &[]);
        self.completes_with(OpStatus::RemoteOutOfBounds);
    }

    /// Receive 3 is posted, and 4 and 5 are.
    fn events(&mut self, with_imm: &Key, notify: &Key) {
        let immediate = IMMEDIATE;
        for receive in [4, 5].map(Receive) {
            self.queue.post(receive).expect("it has so many");
        }
        let transfer = self.bytes(1001, 70);
        let op = RecordedOp::WriteWithImm { transfer, immediate, ordered: false };
        let data = (immediate, &*contents(200..270));
        self.applied("a WRITE_WITH_IMM", with_imm, self.op(op, None), data);
        let transfer = self.bytes(1008, 8);
        let op = RecordedOp::WriteWithImm { transfer, immediate, ordered: true };
        let data = (immediate, &*contents(200..208));
        self.applied("an ordered WRITE_WITH_IMM", with_imm, self.op(op, None), data);
        let op = RecordedOp::Notify { immediate };
        let data = (0, &immediate.to_be_bytes()[..]);
        self.applied("a NOTIFY", notify, self.op(op, None), data);
        let types = [OpType::WriteWithImm, OpType::WriteWithImm, OpType::Notify];
        for op_type in types {
            let event = self.queue.poll().expect("an event");
            assert_eq!((event.op_type, event.immediate), (op_type, immediate));
        }
    }

    //= channels#2.2-bound-by-data
    //= type=test
    /// Both find it posted when they ask, and the data of one comes first.
    fn one_receive_for_two(&mut self, own: &Key) {
        self.queue.post(Receive(6)).expect("it has so many");
        let names = ["a NOTIFY that gets the last receive", "a NOTIFY that gets none"];
        let ops = [1, 2].map(|immediate| self.op(RecordedOp::Notify { immediate }, None));
        let second = Command { slot: CommandSlotId(SLOT + 1), ..ops[1] };
        let requests =
            [self.ask_for(names[0], own, ops[0], 0), self.ask_for(names[1], own, second, 0)];
        requests.iter().for_each(|request| self.serve(request));
        let solicitations = [0, 1].map(|index| {
            let name = format!("solicitation of {}", names[index]);
            self.answer(&name, own, &requests[index], &[])
        });
        for index in [0, 1] {
            let data = (index as u64 + 1).to_be_bytes();
            self.send_data(names[index], own, &solicitations[index], &data);
        }
        let name = "acknowledgement of a NOTIFY that got the last receive";
        self.answer(name, own, &solicitations[0], &[]);
        self.completes_with(OpStatus::Ok);
        let name = "acknowledgement with REMOTE_NOT_READY";
        self.answer(name, own, &solicitations[1], &[]);
        self.completes_with(OpStatus::RemoteNotReady);
        assert_eq!(self.queue.poll().expect("an event").immediate, 1);
    }

    /// Returns the name of the last.
    fn atomics(&mut self, swap: &Key, add: &Key) -> OpName {
        let [expected, new] = [WORD, WORD + 0xff];
        let op = RecordedOp::CompareSwap { remote_offset: WORD_AT, expected, new };
        let data = [expected.to_be_bytes(), new.to_be_bytes()].concat();
        let what = "a COMPARE_SWAP";
        let solicitation = self.begin(what, swap, self.op(op, None), 0);
        self.send_data(what, swap, &solicitation, &data);
        let name = "acknowledgement with the result of a COMPARE_SWAP";
        self.answer(name, swap, &solicitation, &WORD.to_be_bytes());
        assert_eq!(self.completion().result(), Some(WORD));

        let done = Some(name_of(&solicitation).into());
        let what = "a FETCH_ADD";
        let solicitation = self.begin(what, add, self.op(FETCH_ADD, done), 0);
        self.send_data(what, add, &solicitation, &ADDEND.to_be_bytes());
        let name = "acknowledgement with the result of a FETCH_ADD";
        self.answer(name, add, &solicitation, &new.to_be_bytes());
        assert_eq!(self.completion().result(), Some(new));
        name_of(&solicitation)
    }

    //= channels#2.5-name
    //= type=test
    /// `applied` is a FETCH_ADD whose initiator asks what it knows already.
    fn settles(&mut self, own: &Key, applied: OpName) {
        let result = WORD + 0xff;
        let settlement = (Verdict::Applied, result);
        self.settle("SETTLE of an op that was applied", own, applied, settlement);

        let what = "a FETCH_ADD that is settled before its data has come";
        let command = Command { slot: CommandSlotId(SLOT + 1), ..self.op(FETCH_ADD, None) };
        let solicitation = self.begin(what, own, command, 0);
        let name = format!("solicited data of {what}");
        let late = self.ask(&name, own, Some(&solicitation), &ADDEND.to_be_bytes());
        let settlement = (Verdict::NotApplied, 0);
        let name = name_of(&solicitation);
        self.settle("SETTLE of an op that is under way", own, name, settlement);
        self.serve(&late);
        let word = self.words_memory.load_acquire(WORD_AT).expect("a word");
        assert_eq!(word, result + ADDEND, "nothing has changed since");

        //= channels#2.6-forgotten
        //= type=test
        let never = OpName { counter: name.counter + 1000, ..name };
        let settlement = (Verdict::Forgotten, 0);
        self.settle("SETTLE of an op that nobody knows", own, never, settlement);

        let command = self.settle_command(&wrong(), name);
        self.initiator.handle_command(NOW, command).expect("the slot is free");
        let request = self.ask("SETTLE under a wrong key", &wrong(), None, &[]);
        self.serve(&request);
        let name = "REMOTE_AUTHENTICATION_FAILURE to a SETTLE";
        self.answer(name, &reserved(), &request, &[]);
        self.completes_with(OpStatus::RemoteAuthenticationFailure);
    }

    fn settle_command(&self, key: &Key, name: OpName) -> Command {
        let op = CommandOp::Settle { op_type: OpType::FetchAdd, name };
        Command { remote_region: self.words, key: key.key, ..self.command(op) }
    }

    /// Asks, and is told `verdict` and `result`.
    fn settle(&mut self, what: &str, own: &Key, of: OpName, (verdict, result): (Verdict, u64)) {
        let command = self.settle_command(own, of);
        self.initiator.handle_command(NOW, command).expect("the slot is free");
        let request = self.ask(what, own, None, &[]);
        self.serve(&request);
        let name = format!("settlement: {verdict}");
        self.answer(&name, own, &request, &result.to_be_bytes());
        assert_eq!(self.completion().verdict(), Some(verdict));
    }
}

/// Returns the target's name for the op of this solicitation.
fn name_of(solicitation: &Sent) -> OpName {
    match FrameView::parse(&solicitation.octets) {
        Ok(FrameView::Solicitation(view)) => {
            let claims = view.claims();
            let (engine, counter) = (claims.header.engine, claims.header.counter);
            OpName { engine, counter, number: claims.pending }
        }
        _ => panic!("{} is a solicitation", solicitation.name),
    }
}
