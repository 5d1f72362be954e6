//! Of ops that their targets record: verdicts that are not so, and completions that say something
//! else than was seen.

use rma_core::{
    command::RecordedOp,
    op::OpType,
    outcome::{OpName, Verdict},
    wire::{
        RecordedRequest, SettleRequest, Settlement,
        mutation::DATA_HEADER_LEN,
        recorded::RECORDED_REQUEST_LEN,
        settle::{SETTLE_REQUEST_LEN, SETTLEMENT_HEADER_LEN, SETTLEMENT_LEN},
    },
};

use super::*;

/// The target's name for the op.
const NUMBER: u16 = 70;

impl Write {
    /// A FETCH_ADD by `n0` at `n1`, up to its solicitation. What the target calls it.
    fn recorded() -> (Self, OpName) {
        let mut sim = sim_with(Pace::Hardware);
        let pid = Some(rma_core::addr::Pid(1));
        sim.nic_mut(NodeId(0)).configure_slots(0..2, pid);
        let checker = Checker::new(&sim);
        let mut write = Self { sim, checker, frames: 0, local: Instant::ZERO };
        let op = RecordedOp::FetchAdd { remote_offset: 0, addend: 1 };
        assert_eq!(write.issue_op(0, CommandOp::Recorded { op, done: None }), Ok(()));
        let mut out = [0; RECORDED_REQUEST_LEN];
        let mutation = Mutation::FetchAdd { region_offset: 0 };
        RecordedRequest { header: write.header(), mutation, timeout_micros: 9, done: None }
            .emit(out.first_chunk_mut().expect("it is longer"));
        let request = write.frame(0, &out);
        assert_eq!(write.pass(&request), Ok(()));
        let mut out = [0; SOLICITATION_LEN];
        let header = write.header();
        Solicitation { header, pending: NUMBER, payload_len_max: 64 }
            .emit(out.first_chunk_mut().expect("it is longer"));
        let solicitation = write.frame(1, &out);
        assert_eq!(write.pass(&solicitation), Ok(()));
        let Header { engine, counter, .. } = header;
        (write, OpName { engine, counter, number: NUMBER })
    }

    /// Its operand comes, so that it is applied.
    fn apply(&mut self) {
        let mut out = vec![0; DATA_OVERHEAD + 8];
        let header = self.header();
        SolicitedData { header, pending: NUMBER, op_offset: 0, payload_len: 8 }
            .emit(out.first_chunk_mut::<DATA_HEADER_LEN>().expect("it is longer"));
        let data = self.frame(0, &out);
        assert_eq!(self.pass(&data), Ok(()));
        assert_eq!(self.checker.take_commits().len(), 1);
    }

    /// A SETTLE of `name` comes, and is answered with `verdict`.
    fn settle(&mut self, name: OpName, verdict: Verdict) -> Result<(), Violation> {
        let op_type = OpType::FetchAdd;
        assert_eq!(self.issue_op(1, CommandOp::Settle { op_type, name }), Ok(()));
        let slot = CommandSlotId(1);
        let asked = Header { slot, ..self.header() };
        let mut out = [0; SETTLE_REQUEST_LEN];
        SettleRequest { header: asked, op_type, name }
            .emit(out.first_chunk_mut().expect("it is longer"));
        let request = self.frame(0, &out);
        assert_eq!(self.pass(&request), Ok(()));
        let header = Header { slot, ..self.header() };
        let mut out = [0; SETTLEMENT_LEN];
        Settlement { header, verdict }.emit(out.first_chunk_mut().expect("it is longer"));
        let (sealed, tag) = out.split_last_chunk_mut::<TAG_LEN>().unwrap();
        let (own, result) = sealed.split_at_mut(SETTLEMENT_HEADER_LEN);
        let asked = Iv::new(Direction::ToResponder, asked.engine, asked.counter);
        let aad = [&*own, asked.octets()].concat();
        let iv = *Iv::new(Direction::ToInitiator, header.engine, header.counter).octets();
        let (key, text) = (KEY.as_key().into(), Text::in_place(result));
        fastest().seal(&mut [SealJob { key, iv, aad: &aad, text, tag }]);
        let settlement = self.frame(1, &out);
        self.send(&settlement)
    }
}

#[test]
fn a_verdict_that_is_not_so_is_found() {
    let node = NodeId(1);
    use Verdict::{Applied, Forgotten, NotApplied};
    for (is_applied, told, known) in [
        (true, Applied, None),
        (true, NotApplied, Some(Applied)),
        (true, Forgotten, Some(Applied)),
        (false, NotApplied, None),
        (false, Applied, Some(NotApplied)),
        // It was under way until then.
        (false, Forgotten, Some(NotApplied)),
    ] {
        let (mut write, name) = Write::recorded();
        if is_applied {
            write.apply();
        }
        let right = known.map_or(Ok(()), |known| Err(Violation::Verdict { node, told, known }));
        assert_eq!(write.settle(name, told), right, "{is_applied} {told}");
    }
}

#[test]
fn an_op_that_nobody_has_heard_of_is_forgotten_and_nothing_else() {
    let (mut write, name) = Write::recorded();
    write.apply();
    let (node, told, known) = (NodeId(1), Verdict::Applied, Verdict::Forgotten);
    let other = OpName { counter: name.counter + 1, ..name };
    assert_eq!(write.settle(other, told), Err(Violation::Verdict { node, told, known }));
    let (mut write, name) = Write::recorded();
    let other = OpName { number: name.number + 1, ..name };
    assert_eq!(write.settle(other, known), Ok(()));
}

#[test]
fn a_completion_that_does_not_say_how_far_its_op_got_is_found() {
    let all = |write: &mut Write| {
        let data = [(0, 64), (64, 36)].map(|(start, len)| write.data(start, len));
        data.iter().for_each(|it| assert_eq!(write.pass(it), Ok(())));
        let acknowledgement = write.acknowledgement(STATUS_OK);
        assert_eq!(write.pass(&acknowledgement), Ok(()));
    };
    let told = |completion| {
        let (mut write, _) = Write::solicited();
        all(&mut write);
        write.see(0, What::Completed(completion))
    };
    let is_found = |found| matches!(found, Err(Violation::Ending { slot: 0, .. }));
    assert_eq!(told(reached(STATUS_OK)), Ok(()));
    // That it was not solicited.
    assert!(is_found(told(Completion::new(CommandSlotId(0), STATUS_OK, 0, 0))));
    // A name, which a plain write has not, and a result.
    for flag in [4, 8] {
        let head = (STATUS_OK as u64) << 16 | (1 | flag) << 24;
        let line = rma_shm::Line([head, 0, 0, 0, 0, 0, 0, 0]);
        assert!(is_found(told(Completion::from_line(&line).unwrap())), "{flag}");
    }
}
