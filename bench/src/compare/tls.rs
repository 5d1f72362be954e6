//! TLS 1.3 on a TCP connection, with the cipher that 1RMA has.

use std::{
    io::{self, BufReader, ErrorKind, Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
    crypto::{CryptoProvider, ring},
    version::TLS13,
};

use super::end::{End, SHORT};

/// The name in the server's certificate: one that nobody has (RFC 6761).
pub(super) const NAME: &str = "server.invalid";
/// Bytes that are read in a call: the library itself would read 4 KiB.
const READ: usize = 256 << 10;
/// Bytes of a long message that are encrypted before they are written: four full records.
const WRITTEN: usize = 64 << 10;

/// An end of such a connection. Its first messages wait until the handshake is over.
pub(super) struct Tls {
    connection: Connection,
    stream: BufReader<TcpStream>,
}

/// A server's settings, and the certificate that its client has to know, which was made for it.
pub(super) struct Identity {
    pub(super) server: ServerConfig,
    pub(super) certificate: Vec<u8>,
}

/// The error of TLS: of settings, names or certificates.
type Fault = Box<dyn core::error::Error + Send + Sync>;

fn provider() -> Arc<CryptoProvider> {
    let cipher_suites = vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256];
    Arc::new(CryptoProvider { cipher_suites, ..ring::default_provider() })
}

impl Identity {
    pub(super) fn new() -> Result<Self, Fault> {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed([NAME.to_owned()])?;
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], signing_key.into())?;
        server.send_tls13_tickets = 0;
        Ok(Self { server, certificate: cert.der().to_vec() })
    }
}

/// The settings of a client that trusts this certificate alone.
pub(super) fn client_config(certificate: &[u8]) -> Result<ClientConfig, Fault> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.to_vec().into())?;
    Ok(ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

impl Tls {
    /// The client's end and the server's, with a certificate that was made for them.
    pub(super) fn pair([client, server]: [TcpStream; 2]) -> io::Result<[Self; 2]> {
        let identity = Identity::new().map_err(io::Error::other)?;
        let client = Self::client(client, &identity.certificate)?;
        Ok([client, Self::server(server, identity)?])
    }

    /// The end of a client that trusts this certificate alone.
    pub(super) fn client(stream: TcpStream, certificate: &[u8]) -> io::Result<Self> {
        let config = Arc::new(client_config(certificate).map_err(io::Error::other)?);
        let name = NAME.try_into().expect("a name");
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        Ok(Self::new(connection.into(), stream))
    }

    /// The end of a server.
    pub(super) fn server(stream: TcpStream, identity: Identity) -> io::Result<Self> {
        let connection = ServerConnection::new(Arc::new(identity.server));
        Ok(Self::new(connection.map_err(io::Error::other)?.into(), stream))
    }

    fn new(mut connection: Connection, stream: TcpStream) -> Self {
        connection.set_buffer_limit(None);
        Self { connection, stream: BufReader::with_capacity(READ, stream) }
    }
}

impl End for Tls {
    fn put(&mut self, message: &[u8]) -> io::Result<usize> {
        if message.len() > SHORT {
            self.flush()?;
        }
        self.connection.writer().write(&message[..message.len().min(WRITTEN)])
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(self.stream.get_mut())?;
        }
        Ok(())
    }

    fn get(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        loop {
            match self.connection.reader().read(&mut into[count..]) {
                Ok(0) if count < into.len() => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => count += read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            // One call of the kernel; what it gave is decrypted to its end.
            if count == into.len() || count > 0 && self.stream.buffer().is_empty() {
                return Ok(count);
            }
            if self.connection.read_tls(&mut self.stream)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.connection.process_new_packets().map_err(io::Error::other)?;
            // Of the handshake.
            self.flush()?;
        }
    }
}
