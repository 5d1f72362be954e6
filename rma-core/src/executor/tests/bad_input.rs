//! Calls that cannot be right: an error that names what is wrong, and nothing issued.

use super::*;

fn refused(pieces: &[Piece<'_>]) -> CallError {
    let mut bench = Bench::new(4, fixed(8.0));
    let error = bench.executor.submit(bench.now, &Call::of(pieces)).unwrap_err();
    assert!(bench.take().is_empty());
    assert_eq!(bench.executor.calls(), 0);
    error
}

#[test]
fn nothing_empty_outside_or_for_somebody_else_is_taken() {
    let (local, foreign) = (local(1, 100), {
        let memory = Arc::new(Region::new(100).unwrap());
        RegisteredRegion::new(RegionId::from_bits(1), memory, NicTag(2))
    });
    let grant = grant("192.0.2.2", OpType::Read, 1000);
    let good =
        Piece { grant: &grant, remote_offset: 990, local: &local, local_offset: 90, len: 10 };
    assert_eq!(refused(&[]), CallError::Pieces { pieces: 0 });
    let many = vec![Piece { len: 1, ..good }; PIECES_MAX + 1];
    assert_eq!(refused(&many), CallError::Pieces { pieces: PIECES_MAX + 1 });
    assert_eq!(refused(&[good, Piece { len: 0, ..good }]), CallError::EmptyPiece { piece: 1 });
    for (remote_offset, len) in [(990, 11), (1000, 1), (u64::MAX, 1), (5, u64::MAX)] {
        let error = refused(&[Piece { remote_offset, len, ..good }]);
        let expected =
            matches!(error, CallError::RemoteOutOfBounds { piece: 0, region_len: 1000, .. });
        assert!(expected, "{error}");
    }
    for local_offset in [91, 100, u64::MAX] {
        let error = refused(&[Piece { local_offset, ..good }]);
        let expected =
            matches!(error, CallError::LocalOutOfBounds { piece: 0, region_len: 100, .. });
        assert!(expected, "{error}");
    }
    let error = refused(&[Piece { local: &foreign, ..good }]);
    assert!(matches!(
        error,
        CallError::Submit { piece: 0, error: SubmitError::RegionOfAnotherHost { .. } }
    ));
    let stranger = Grant { pid: Pid(8), ..grant };
    let error = refused(&[good, Piece { grant: &stranger, local_offset: 0, ..good }]);
    assert!(matches!(
        error,
        CallError::Submit { piece: 1, error: SubmitError::GrantForAnotherProcess { .. } }
    ));
    let rekey = Grant { op_type: OpType::Rekey, ..grant };
    assert_eq!(
        refused(&[Piece { grant: &rekey, ..good }]),
        CallError::NoTransfer { granted: OpType::Rekey }
    );
    let write = Grant { op_type: OpType::Write, ..grant };
    let error = refused(&[good, Piece { grant: &write, local_offset: 0, ..good }]);
    assert!(matches!(
        error,
        CallError::Submit { piece: 1, error: SubmitError::GrantForAnotherOpType { .. } }
    ));
    let elsewhere = Grant { responder: addr("192.0.2.3"), ..grant };
    let error = refused(&[good, Piece { grant: &elsewhere, local_offset: 0, ..good }]);
    assert_eq!(error, CallError::AnotherHost { piece: 1 });
}

#[test]
fn pieces_that_change_the_same_bytes_are_refused_and_those_that_only_read_them_are_not() {
    let local = local(1, 1000);
    for op_type in [OpType::Read, OpType::Write] {
        let grant = grant("192.0.2.2", op_type, 1000);
        let piece = |remote_offset, local_offset, len| Piece {
            grant: &grant,
            remote_offset,
            local: &local,
            local_offset,
            len,
        };
        // Changed first, then only read.
        let piece = |changed, read, len| match op_type {
            OpType::Read => piece(read, changed, len),
            _ => piece(changed, read, len),
        };
        let overlap = |first, second| CallError::Overlap { first, second };
        assert_eq!(refused(&[piece(0, 0, 10), piece(9, 500, 10)]), overlap(0, 1));
        assert_eq!(
            refused(&[piece(50, 0, 1), piece(400, 3, 50), piece(0, 500, 51)]),
            overlap(0, 2)
        );
        assert_eq!(refused(&[piece(7, 0, 1), piece(7, 500, 1)]), overlap(0, 1));
        let fits = [piece(10, 0, 10), piece(20, 0, 10), piece(0, 0, 10)];
        let mut bench = Bench::new(4, fixed(8.0));
        bench.submit(&fits);
        assert_eq!(bench.run(|_| OpStatus::Ok).len(), 3);
    }
}

#[test]
fn of_a_circular_region_the_same_bytes_are_found_at_any_of_their_offsets() {
    let memory = Arc::new(Region::circular(1024).unwrap());
    let ring = RegisteredRegion::new(RegionId::from_bits(1), memory, NicTag(1));
    let grant = grant("192.0.2.2", OpType::Read, 1 << 20);
    let piece = |local_offset, len| Piece {
        grant: &grant,
        remote_offset: 0,
        local: &ring,
        local_offset,
        len,
    };
    let overlap = CallError::Overlap { first: 0, second: 1 };
    for same in [
        [piece(10, 10), piece(1024 + 19, 10)],
        [piece(1000, 100), piece(70, 10)],
        [piece(70, 10), piece(1000, 100)],
        [piece(1000, 100), piece(1020, 10)],
        [piece(0, 1024), piece(1024 + 1000, 1)],
    ] {
        assert_eq!(refused(&same), overlap);
    }
    for (local_offset, len) in [(0, 1025), (1025, 1024), (2048, 1)] {
        let error = refused(&[piece(local_offset, len)]);
        assert!(
            matches!(error, CallError::LocalOutOfBounds { region_len: 1024, .. }),
            "{len} bytes at {local_offset}: {error:?}"
        );
    }
    let mut bench = Bench::new(4, fixed(8.0));
    bench.submit(&[piece(1000, 100), piece(76, 10), piece(1024 + 86, 914)]);
    assert_eq!(bench.run(|_| OpStatus::Ok).len(), 3);
}

#[test]
fn settings_that_cannot_work_are_named() {
    let portal = || {
        let addresses: LocalAddresses = addr("192.0.2.1").into();
        let config = PortalConfig {
            slots: 0..1,
            pid: PID,
            addresses,
            bell: None,
            flag: None,
            nic: NicTag(1),
        };
        portal(config).0
    };
    let refused = |config| CommandExecutor::new(portal(), config).unwrap_err().to_string();
    let valid = ExecutorConfig::default();
    assert!(refused(ExecutorConfig { calls: 0, ..valid }).starts_with("`calls` is 0"));
    assert!(refused(ExecutorConfig { calls: u16::MAX, ..valid }).starts_with("`calls` is 65535"));
    assert!(
        refused(ExecutorConfig { op_size_max: 63, ..valid }).starts_with("`op_size_max` is 63")
    );
    assert!(refused(ExecutorConfig { op_size_max: 4097, ..valid }).contains("4097"));
    let cc = CcConfigBuilder { md: 0.0, ..CcConfigBuilder::default() };
    assert!(refused(ExecutorConfig { cc, ..valid }).contains("`md`"));
}

#[test]
fn more_hosts_than_there_are_windows_are_an_error_until_one_is_free() {
    let cc = CcConfigBuilder { remotes: 2, ..fixed(8.0) };
    let (mut bench, local) = (Bench::new(8, cc), local(1, 64));
    let grants = ["192.0.2.2", "192.0.2.3", "192.0.2.4"].map(|host| grant(host, OpType::Read, 64));
    let piece = |grant| Piece { grant, remote_offset: 0, local: &local, local_offset: 0, len: 64 };
    bench.submit(&[piece(&grants[0])]);
    bench.submit(&[piece(&grants[1])]);
    let error = bench.executor.submit(bench.now, &Call::of(&[piece(&grants[2])])).unwrap_err();
    assert!(matches!(error, CallError::TooManyRemotes(_)), "{error}");
    bench.run(|_| OpStatus::Ok);
    assert_eq!(bench.outcome().status, CallStatus::Ok);
    bench.submit(&[piece(&grants[2])]);
    bench.run(|_| OpStatus::Ok);
    let ended = core::iter::from_fn(|| bench.executor.poll_outcome());
    assert_eq!(ended.filter(|it| it.status == CallStatus::Ok).count(), 2);
}
