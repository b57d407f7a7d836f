//! The signatures that came with a request, decoded and counted.

use data_encoding::{BASE64, BASE64URL, BASE64URL_NOPAD, HEXLOWER_PERMISSIVE};

use super::{
    VerifyError,
    spec::{HmacAlgorithm, SignatureEncoding},
};

/// Rotation needs two. Ten leave room; a longer list only serves to make us work.
pub(crate) const CANDIDATES_MAX: usize = 10;

/// Bytes of the longest signature, that of SHA-512.
const SIGNATURE_MAX: usize = 64;

/// The signatures of one request, decoded. Lives on the stack: every request has some.
pub(super) struct SignatureCandidates {
    bytes: [[u8; SIGNATURE_MAX]; CANDIDATES_MAX],
    length: usize,
    /// How many are well-formed.
    pub(super) decoded: usize,
    /// How many there are.
    pub(super) seen: usize,
}

impl SignatureCandidates {
    pub(super) fn new(algorithm: HmacAlgorithm) -> Self {
        let length = match algorithm {
            HmacAlgorithm::Sha1 => 20,
            HmacAlgorithm::Sha256 => 32,
            HmacAlgorithm::Sha512 => SIGNATURE_MAX,
        };
        Self { bytes: [[0; SIGNATURE_MAX]; CANDIDATES_MAX], length, decoded: 0, seen: 0 }
    }

    /// Takes one more signature. What does not decode is counted and otherwise passed over: during
    /// a rotation the other one may be right.
    pub(super) fn push(
        &mut self,
        text: &[u8],
        encoding: SignatureEncoding,
    ) -> Result<(), VerifyError> {
        if self.seen == CANDIDATES_MAX {
            return Err(VerifyError::TooManySignatures);
        }
        self.seen += 1;
        if decode(text, encoding, &mut self.bytes[self.decoded][..self.length]) {
            self.decoded += 1;
        }
        Ok(())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes[..self.decoded].iter().map(|bytes| &bytes[..self.length])
    }
}

/// Whether `text` is a canonical spelling of exactly as many bytes as `signature` has room for.
fn decode(text: &[u8], encoding: SignatureEncoding, signature: &mut [u8]) -> bool {
    let spelling = match encoding {
        SignatureEncoding::Hex => &HEXLOWER_PERMISSIVE,
        SignatureEncoding::Base64 => &BASE64,
        SignatureEncoding::Base64url if text.ends_with(b"=") => &BASE64URL,
        SignatureEncoding::Base64url => &BASE64URL_NOPAD,
    };
    if text.len() != spelling.encode_len(signature.len()) {
        return false;
    }
    // `decode_mut` wants room for all that the length allows, which padding may round up.
    let mut room = [0; SIGNATURE_MAX + 2];
    let Ok(room_length) = spelling.decode_len(text.len()) else { return false };
    match spelling.decode_mut(text, &mut room[..room_length]) {
        Ok(length) if length == signature.len() => {
            signature.copy_from_slice(&room[..length]);
            true
        }
        Ok(_) | Err(_) => false,
    }
}
