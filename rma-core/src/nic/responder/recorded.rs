//! Hop 1 of recorded mutations, and of SETTLE (not in the paper).

use super::{
    DoneElsewhere, Responder,
    admission::{Admitted, Asked, Wanted},
    asked,
    records::Asker,
};
use crate::{
    backend::RxFrame,
    error::DropReason,
    nic::{security::Opened, tables::Tables},
    op::OpStatus,
    outcome::Done,
    region::RegionId,
    time::Instant,
    wire::{Mutation, RecordedRequest, SettleRequest, word_of},
};

impl Responder {
    //= channels#2.1-four-hops
    /// Hop 1 of a recorded mutation.
    pub(in crate::nic) fn handle_recorded_request(
        &mut self,
        now: Instant,
        claims: RecordedRequest,
        frame: &mut RxFrame<'_>,
        opened: &Opened,
        tables: &mut Tables<'_>,
    ) -> Result<(), DropReason> {
        let asked = asked(now, claims.header, frame);
        if self.writes.has_come(&asked) {
            return Err(DropReason::Duplicate);
        }
        let mutation = claims.mutation;
        let bucket = self.bucket_of(&asked, tables);
        let full = self.writes.why_full(claims.header.class, bucket);
        let (op_type, span) = (mutation.op_type(), mutation.span());
        let wanted = Wanted { claims, op_type, span, full };
        let admitted = self.admission.admit(&asked, wanted, frame, opened, tables)?;
        let immediate = word_of(frame.bytes);
        let has_immediate =
            matches!(mutation, Mutation::Send { .. } | Mutation::WriteWithImm { .. });
        if immediate != 0 && !has_immediate {
            return Err(DropReason::Field);
        }
        if let Some(done) = claims.done {
            self.note_done(&asked, done, tables);
        }
        if mutation.consumes_receive()
            && let Err(reason) = look_for_receive(claims.header.region, &mutation, tables)
        {
            let status = reason.refused_with().unwrap_or(OpStatus::RemotePermissionDenied);
            self.admission.refuse(&asked, &admitted.key, status, tables);
            return Err(reason);
        }
        let Admitted { request, key, revision } = admitted;
        let request = request.map(|it| it.as_mutation());
        let admitted = Admitted { request, key, revision };
        if self.writes.make_room(claims.header.class, bucket, &mut self.admission, tables) {
            self.writes.push(now, asked, bucket, &admitted, immediate);
        }
        Ok(())
    }

    /// An initiator knows how an op ended, whichever engine of this host has its record.
    fn note_done(&mut self, asked: &Asked, done: Done, tables: &Tables<'_>) {
        let (config, asker) = (tables.config, asked.asker());
        match config.engine_of_number(done.number) {
            Some(engine) if !config.is_alone() && engine != config.place.engine => {
                // Without room the record is kept for as long as if the news had been lost.
                let _ = self.dones.try_push(DoneElsewhere { engine, asker, done });
            }
            _ => self.writes.note_done(&asker, done),
        }
    }

    /// As [`Responder::note_done`], of what another engine of this host was told.
    pub(in crate::nic) fn note_done_elsewhere(&mut self, asker: &Asker, done: Done) {
        self.writes.note_done(asker, done);
    }

    //= channels#2.6-present-key
    //= channels#2.6-with-reads
    /// Hop 1 of a SETTLE. Its answer waits where those of reads do.
    pub(in crate::nic) fn handle_settle_request(
        &mut self,
        now: Instant,
        claims: SettleRequest,
        frame: &mut RxFrame<'_>,
        opened: &Opened,
        tables: &mut Tables<'_>,
    ) -> Result<(), DropReason> {
        let asked = asked(now, claims.header, frame);
        let bucket = self.bucket_of(&asked, tables);
        let full = self.reads.why_full(claims.header.class, bucket, 0);
        let wanted = Wanted { claims, op_type: claims.op_type, span: None, full };
        let admitted = self.admission.admit(&asked, wanted, frame, opened, tables)?;
        let (verdict, result) = self.writes.settle(&asked, &admitted.request, tables);
        let class = claims.header.class;
        if let Some(job) = self.reads.place(bucket, class, 0, &mut self.admission, tables) {
            job.settle(now, asked, admitted.key, verdict, result);
        }
        Ok(())
    }
}

//= channels#2.1-not-ready-at-once
/// Whether a receive is posted where an op on `region` needs one. Only a look: it is bound to the
/// op by its data.
fn look_for_receive(
    region: RegionId,
    mutation: &Mutation,
    tables: &mut Tables<'_>,
) -> Result<(), DropReason> {
    let queue = tables.regions.queue_of(region, mutation);
    let queue = queue.and_then(|queue| tables.regions.queue_mut(queue));
    let Some((port, _)) = queue else { return Err(DropReason::RequestNotPermitted) };
    let has_receive = port.has_receive();
    match port.refused() {
        0 => (),
        posts => tables.counters.posts_refused.add(posts),
    }
    if let Mutation::Send { op_size } = mutation
        && u32::from(*op_size) > port.layout().buffer_len()
    {
        return Err(DropReason::RequestOutOfBounds);
    }
    if has_receive { Ok(()) } else { Err(DropReason::NoReceivePosted) }
}
