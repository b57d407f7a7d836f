//! An S3 server in a child process: moto behind a strict check of signatures, see
//! `tests/vendors/s3_server.py`.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use surehook_messaging::media::{Bucket, BucketSpec};

use super::tools::{Tool, vendor_file};

pub(crate) const BUCKET: &str = "files";
pub(crate) const ACCESS_KEY: &str = "AKIATESTTESTTEST";
pub(crate) const SECRET_KEY: &str = "abc/DEF+ghi0123456789secretsecretsecret12";

/// An S3 server with one empty bucket. Stops when dropped.
#[derive(Debug)]
pub(crate) struct S3Server {
    child: Child,
    port: u16,
}

impl S3Server {
    /// Starts a server, which is part of the vendor libraries; `None` if the test is to be skipped.
    #[track_caller]
    pub(crate) fn start() -> Option<Self> {
        if !Tool::Vendors.is_available() {
            return None;
        }
        let mut child = Command::new(vendor_file("python/bin/python"))
            .args(["-c", include_str!("../../vendors/s3_server.py")])
            .args([BUCKET, ACCESS_KEY, SECRET_KEY, "us-east-1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line
            .trim()
            .strip_prefix("port ")
            .unwrap_or_else(|| panic!("unexpected output {line:?}"));
        Some(Self { port: port.parse().unwrap(), child })
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The bucket as in a settings file.
    pub(crate) fn spec(&self) -> BucketSpec {
        BucketSpec {
            endpoint: Some(self.endpoint()),
            bucket: Some(BUCKET.to_owned()),
            access_key: Some(ACCESS_KEY.parse().unwrap()),
            secret_key: Some(SECRET_KEY.parse().unwrap()),
            prefix: "media/".to_owned(),
            ..BucketSpec::default()
        }
    }

    pub(crate) fn bucket(&self) -> Bucket {
        self.spec().build(&|_| None).unwrap().unwrap()
    }

    /// The bucket as TOML, with `more` settings of the bucket.
    pub(crate) fn settings(&self, more: &str) -> String {
        format!(
            "[media]\nendpoint = \"{}\"\nbucket = \"{BUCKET}\"\naccess_key = \"{ACCESS_KEY}\"\n\
             secret_key = \"env:S3_SECRET\"\nprefix = \"media/\"\n{more}\n",
            self.endpoint()
        )
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        // The process exits when its input is closed.
        drop(self.child.stdin.take());
        let _ended = self.child.wait();
    }
}
