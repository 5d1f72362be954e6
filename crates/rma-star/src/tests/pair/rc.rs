//! Pairs both of whose sides are stateful: of the two, "Z" is the one that connects.

use core::time::Duration;

use super::{FRAME_LEN_MAX, Pair, QP, address};
use crate::{
    config::StarConfigBuilder,
    names::Qpn,
    portal::{Post, QpRecord, Report},
    tables::z_time,
    verbs::WcStatus,
};

impl Pair {
    /// A pair whose connection is ready, both of whose sides are stateful if `is_rc`.
    pub(crate) fn of(settings: StarConfigBuilder, is_rc: bool) -> Self {
        if !is_rc {
            return Self::new(settings);
        }
        let mut pair = Self::unconnected(settings);
        pair.connect_rc(QP);
        pair.sent.clear();
        pair
    }

    /// Another connection, both of whose sides are stateful.
    pub(crate) fn connect_rc(&mut self, qp: u32) {
        let record = QpRecord {
            peer: address(2),
            pd: self.z.pd.0,
            local_pd: self.z.pd.0,
            peer_qpn: Qpn::new(0, qp).unwrap().to_bits(),
            nonce: 9,
            era: 0,
            packet_len_max: FRAME_LEN_MAX as u16,
            z_clock: z_time(self.now).0,
            key: [0; 16],
        };
        self.z.portal.set_record(qp, &record);
        self.z.command(Post::OpenRc { qp, connects: true });
        self.run_for(Duration::from_micros(50));
        let Some(Report::Opened { status: WcStatus::Success, key, clock, .. }) = self.z.told.pop()
        else {
            panic!("the connection is not open at who connects");
        };
        let (peer, local_pd, z_clock) = (address(1), self.f.pd.0, clock);
        let record = QpRecord { peer, local_pd, z_clock, key, ..record };
        self.f.portal.set_record(qp, &record);
        self.f.command(Post::OpenRc { qp, connects: false });
        self.run_for(Duration::from_micros(50));
        assert_eq!(self.z.told, [Report::Ready { qp }]);
        assert!(matches!(self.f.told[..], [Report::Opened { .. }, Report::Ready { .. }]));
        self.z.told.clear();
        self.f.told.clear();
        self.key = key;
    }
}
