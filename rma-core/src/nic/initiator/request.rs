//! Hop 1 at the initiator: an op enters service, and its request is written (1RMA §3.1, §5.1).

use super::{Initiator, queues::fifo, slots::State};
use crate::{
    backend::{Transmit, TxFrame},
    command::{CommandOp, Transfer},
    crypto::EngineId,
    nic::{granules::Granules, solicitation_window::Solicitor, tables::Tables},
    op::ClassOfService,
    port::SourcePort,
    time::Instant,
    wire::{
        Header, Mutation, MutationRequest, Request,
        mutation::MUTATION_REQUEST_LEN,
        read::{REQUEST_LEN, RESPONSE_OVERHEAD},
    },
};

impl Initiator {
    /// Lets the next op enter service, if there is one that may, and writes its request.
    pub(super) fn poll_request(
        &mut self,
        now: Instant,
        tables: &mut Tables<'_>,
        out: &mut TxFrame<'_>,
    ) -> Option<()> {
        let admits_read = tables.window.admits(Solicitor::Read);
        let id = self.next_ready(admits_read)?;
        let slot = &mut self.slots[id.index()];
        let command = &slot.command;
        let pid = slot.pid.expect("a slot with a command has a PID");
        let addresses = &tables.config.place.addresses;
        let source = addresses.toward(command.responder).expect("checked on arrival");
        self.waiting[fifo(command.class, command.op.op_type().shape().moves)]
            .remove(&mut self.links, id.0);
        self.in_service.push_back(&mut self.links, id.0);
        self.bulk_under_way += usize::from(command.class == ClassOfService::Throughput);

        let header = Header {
            class: command.class,
            pid,
            region: command.remote_region,
            slot: id,
            generation: slot.generation,
            engine: EngineId::default(),
            counter: 0,
        };
        let mutation = match command.op {
            CommandOp::Read(Transfer { remote_offset, op_size, .. }) => {
                tables.window.debit(Solicitor::Read, op_size);
                let request = Request {
                    header,
                    region_offset: remote_offset,
                    op_size: op_size as u16,
                    payload_len_max: tables.config.payload_len_max(source, RESPONSE_OVERHEAD),
                };
                slot.seal.iv = tables.security.write_request(&command.key, request, out.bytes);
                None
            }
            CommandOp::Write(Transfer { remote_offset, op_size, .. }) => {
                Some(Mutation::Write { region_offset: remote_offset, op_size: op_size as u16 })
            }
            CommandOp::Rekey(_) => Some(Mutation::Rekey),
        };
        if let Some(mutation) = mutation {
            let timeout_micros = (self.timeout_nanos / 1_000) as u32;
            let request = MutationRequest { header, mutation, timeout_micros };
            slot.seal.iv = tables.security.write_request(&command.key, request, out.bytes);
        }
        self.data_first = true;
        slot.entered_at = now;
        slot.arrived = Granules::NONE;
        slot.state = State::InService;
        slot.source_port = SourcePort::of_turn(now);
        let len = if mutation.is_some() { MUTATION_REQUEST_LEN } else { REQUEST_LEN };
        let ends = [source, slot.command.responder];
        let transmit = Transmit::new(ends, tables.config.place.port, header.class, len);
        out.hold(Transmit { source_port: slot.source_port, ..transmit });
        Some(())
    }
}
