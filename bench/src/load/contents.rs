//! The region's bytes before and after a load: ops are verified before anything is measured, and
//! whoever writes reads back all that it wrote, and restores what it found.
//!
//! A load changes its part of the region alone ([`Client::area`]); two that write to one part at
//! once would each find the other's bytes.

use std::io::{self, Write};

use rma_xdp::OpType;

use super::{atomics, checked::Checked, mix::Mix, op::LoadOp};
use crate::{
    client::{Client, Verified},
    error::PairError,
    interrupt::Interrupt,
    line,
    model::Model,
};

/// The bytes of the region, and what is known of them.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// Those before, if they are written back.
    found: Option<Vec<u8>>,
    pub(crate) checked: Checked,
}

impl Contents {
    /// Notes what is there, and verifies `count` ops of the mix, each kind for itself. With none,
    /// WRITEs are neither read back nor is anything restored.
    ///
    /// # Errors
    /// On a wrong byte; if op after op fails.
    pub(crate) fn before(
        &mut self,
        client: &mut Client,
        mix: &Mix,
        count: u64,
        interrupt: &Interrupt,
    ) -> Result<(), PairError> {
        if count == 0 {
            return Ok(());
        }
        let ops: Vec<LoadOp> = mix.ops().filter(|&op| op != LoadOp::Send).collect();
        if ops.iter().any(|op| op.writes()) {
            let area = client.area();
            let found = client.read_all(area, interrupt)?;
            client.model = Some(Model::at(area.offset, found.clone()));
            self.found = Some(found);
        }
        for op in &ops {
            let count = count.div_ceil(ops.len() as u64);
            if op.is_atomic() {
                atomics::verify(client, *op, count, &mut self.checked, interrupt)?;
                continue;
            }
            let before = self.checked;
            let mut so_far = |done: &Verified| {
                let Verified { reads, writes, bytes, retried, .. } = *done;
                self.checked.ops = before.ops + reads + writes;
                self.checked.bytes = before.bytes + bytes;
                self.checked.retried = before.retried + retried;
            };
            let op_type = if op.writes() { OpType::Write } else { OpType::Read };
            let done = client.verify(op_type, count, interrupt, &mut so_far)?;
            so_far(&done);
        }
        Ok(())
    }

    /// Reads back what was written, compares it, and restores what was there.
    ///
    /// # Errors
    /// As [`Contents::before`].
    pub(crate) fn after(
        &mut self,
        client: &mut Client,
        interrupt: &Interrupt,
    ) -> Result<(), PairError> {
        let Some(found) = &self.found else { return Ok(()) };
        let area = client.area();
        let now = client.read_all(area, interrupt)?;
        let model = client.model.as_ref();
        if let Some(at) = model.and_then(|it| it.first_difference(area.offset, &now)) {
            return Err(PairError::WrongByte { at });
        }
        self.checked.compared = area.len;
        client.restore(found, interrupt).map(drop)
    }

    /// Writes back what was there, where a run has ended early: in a second, or not at all.
    ///
    /// # Errors
    /// As [`Contents::before`].
    pub(crate) fn restore_hastily(
        &self,
        client: &mut Client,
        interrupt: &Interrupt,
    ) -> Result<(), PairError> {
        let Some(found) = &self.found else { return Ok(()) };
        let was_interrupted = interrupt.is_set();
        client.failures.make_haste();
        let restored = interrupt.once_more(|second| {
            if was_interrupted {
                // To nobody, if nobody is there.
                let _ = writeln!(
                    io::stderr(),
                    "rma-bench: restoring what was there before; once more Ctrl-C leaves it as it is"
                );
            }
            client.restore(found, second)
        });
        restored.map(drop)
    }

    /// Says to people what was verified of a load for which `asked` ops were to be. `ended_well`:
    /// the server was there to its end.
    pub(crate) fn say(
        &self,
        mix: &Mix,
        asked: u64,
        ended_well: bool,
        server: &dyn core::fmt::Display,
    ) {
        let Checked { ops, bytes, retried, settled, compared } = self.checked;
        if mix.ops().all(|it| it == LoadOp::Send) && ended_well {
            line!(
                "  verified  by {server}, which compares each message and says at its end whether every byte was right"
            );
            return;
        }
        if asked == 0 || ops == 0 {
            let writes = mix.ops().any(LoadOp::writes);
            let left = if writes { ": the region holds what was written last" } else { "" };
            let why = if asked == 0 { ", as asked for with --verify 0" } else { "" };
            line!("  verified  nothing{why}{}", if asked == 0 { left } else { "" });
            return;
        }
        let repeated =
            if retried > 0 { format!("; {retried} issued again") } else { String::new() };
        let settled = if settled > 0 { format!("; {settled} settled") } else { String::new() };
        let right = if mix.ops().all(LoadOp::is_atomic) { "word" } else { "byte" };
        let megabytes = bytes as f64 / 1e6;
        line!(
            "  verified  {ops} random ops with {server}, {megabytes:.1} MB, every {right} right{repeated}{settled}"
        );
        if compared > 0 {
            line!(
                "            all {compared} bytes read back, every byte right; then restored what was there before"
            );
        }
    }
}
