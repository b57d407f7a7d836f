mod linear {
    use crate::provider::testing::{TestCall, attribute_pairs, summary, verify};

    #[test]
    fn key_is_the_delivery_header_and_never_the_webhook_id() {
        let delivery = ("linear-delivery", "d-1");
        let event = ("linear-event", "Issue");
        let issue = r#"{"action":"update","type":"Issue","data":{"id":"i-1"},"webhookId":"w-1"}"#;
        let cases: [(_, &[_], _, _); 5] = [
            ("typical", &[delivery, event], issue, ["Issue.update", "linear:d-1", "i-1"]),
            ("no delivery", &[event], issue, ["Issue.update", "-", "i-1"]),
            ("no action", &[delivery], r#"{"type":"Issue"}"#, ["Issue", "linear:d-1", "-"]),
            ("only headers", &[delivery, event], "{}", ["Issue", "linear:d-1", "-"]),
            ("not JSON", &[delivery], "x", ["-", "linear:d-1", "-"]),
        ];
        for (name, headers, body, expected) in cases {
            assert_eq!(summary("linear", headers, body), expected, "case: {name}");
        }
    }

    #[test]
    fn signed_time_in_the_body_is_checked() {
        let at = 1_779_024_000_000;
        let call = |body: &str| TestCall::new("linear", "secret").at(at).body(body).signed();
        let good = call(r#"{"webhookTimestamp":1779023998000}"#);
        let hours = |hours: i64| at + hours * 3_600_000;
        let cases = [
            ("at once", good.clone(), Ok(0)),
            ("the last retry", good.clone().at(hours(7)), Ok(0)),
            ("replayed after half a day", good.clone().at(hours(13)), Err("stale")),
            ("from a clock an hour ahead", good.clone().at(hours(-1)), Err("stale")),
            ("renewed without a signature", good.body("{}"), Err("mismatch")),
            ("a text", call(r#"{"webhookTimestamp":"1779023998000"}"#), Ok(0)),
            ("not a time", call(r#"{"webhookTimestamp":"now"}"#), Err("malformed")),
            ("years ago", call(r#"{"webhookTimestamp":1}"#), Err("stale")),
            ("no time", call("{}"), Ok(0)),
            ("not JSON", call("x"), Ok(0)),
        ];
        for (name, call, expected) in cases {
            assert_eq!(call.verify(), expected, "case: {name}");
        }
    }

    #[test]
    fn only_its_own_signature_header_counts() {
        // HMAC-SHA256 of the body with the key "secret".
        let body = r#"{"webhookTimestamp":1}"#;
        let signature = "ddfc0e40f5cd54cef793e9ebca5bc71d37ef21a6d14c6a3e7b41fce90a27bfdd";
        let check = |name| verify("linear", &["secret"], &[(name, signature)], body, 1).is_ok();
        assert!(check("linear-signature"));
        assert!(!check("x-linear-signature"));
    }

    #[test]
    fn attributes_include_issue_and_author() {
        let body = r#"{"data":{"id":"c-1","issueId":"i-1"},"actor":{"id":"u-1","email":"ana@example.com"},"organizationId":"o-1"}"#;
        let expected =
            ["object=c-1", "object=i-1", "email=ana@example.com", "user=u-1", "account=o-1"];
        assert_eq!(attribute_pairs("linear", &[], body), expected);
    }
}

mod shopify {
    use crate::provider::testing::{attribute_pairs, summary};

    const SHOP: (&str, &str) = ("x-shopify-shop-domain", "a.myshopify.com");
    const WEBHOOK: (&str, &str) = ("x-shopify-webhook-id", "w-1");
    const TOPIC: (&str, &str) = ("x-shopify-topic", "orders/paid");
    const EVENT: (&str, &str) = ("x-shopify-event-id", "e-1");

    #[test]
    fn keys_are_per_shop_and_ids_are_not_rounded() {
        let key = "shopify:a.myshopify.com:w-1";
        let cases: [(_, &[_], _, _); 6] = [
            (
                "beyond 2^53",
                &[SHOP, WEBHOOK, TOPIC, EVENT],
                r#"{"id":820982911946154508}"#,
                ["orders/paid", key, "a.myshopify.com:820982911946154508"],
            ),
            (
                "stock has another id",
                &[SHOP, WEBHOOK, TOPIC],
                r#"{"inventory_item_id":271878346596884015,"available":4}"#,
                ["orders/paid", key, "a.myshopify.com:271878346596884015"],
            ),
            (
                "a request for data",
                &[SHOP, WEBHOOK, TOPIC],
                r#"{"shop_id":1,"customer":{"id":7}}"#,
                ["orders/paid", key, "a.myshopify.com:7"],
            ),
            ("no id of the webhook", &[SHOP, TOPIC, EVENT], "{}", ["orders/paid", "-", "-"]),
            ("no shop", &[WEBHOOK, TOPIC], r#"{"id":1}"#, ["orders/paid", "-", "-"]),
            ("not JSON", &[SHOP, WEBHOOK], "x", ["-", key, "-"]),
        ];
        for (name, headers, body, expected) in cases {
            assert_eq!(summary("shopify", headers, body), expected, "case: {name}");
        }
    }

    #[test]
    fn attributes_include_order_and_customer() {
        let body = r#"{"id":1,"order_number":9999,"email":"ana@example.com","phone":"+5511987654321",
            "financial_status":"paid","customer":{"id":7,"email":"ana@example.com"}}"#;
        let expected = [
            "object=1",
            "object=9999",
            "phone=5511987654321",
            "email=ana@example.com",
            "user=7",
            "account=a.myshopify.com",
            "provider_status=paid",
        ];
        assert_eq!(attribute_pairs("shopify", &[SHOP], body), expected);
    }
}

mod square {
    use crate::provider::testing::{TestCall, assert_events, attribute_pairs};

    const URL: &str = "https://gw.test/in/square/1";

    fn call() -> TestCall {
        TestCall::new("square", "sq-signature-key-1234")
            .url(URL)
            .body("{\"event_id\":\"e1\"}")
            .signed()
    }

    #[test]
    fn signature_covers_the_url() {
        let cases = [
            ("the same", URL, Ok(0)),
            ("an additional slash", "https://gw.test/in/square/1/", Err("mismatch")),
            ("a query", "https://gw.test/in/square/1?a=1", Err("mismatch")),
            ("not secure", "http://gw.test/in/square/1", Err("mismatch")),
            ("another host", "https://gw.example/in/square/1", Err("mismatch")),
        ];
        for (name, url, expected) in cases {
            assert_eq!(call().url(url).verify(), expected, "case: {name}");
        }
        let mut guessing = call().header("host", "gw.test").header("x-forwarded-host", "gw.test");
        guessing.knows_origin = false;
        assert_eq!(guessing.verify(), Err("unknown_address"), "a host in a header is not trusted");
        call().assert_every_bit_counts(&["x-square-hmacsha256-signature"]);
    }

    #[test]
    fn keys_are_per_merchant() {
        assert_events(
            "square",
            &[],
            r#"
            case | body | kind | key | ordering key
            typical | {"merchant_id":"M1","type":"payment.updated","event_id":"e1","data":{"id":"p1"}} | payment.updated | square:M1:e1 | p1
            no merchant | {"type":"a","event_id":"e1"} | a | - | -
            no id | {"merchant_id":"M1","type":"a"} | a | - | -
            not JSON | x | - | - | -
            "#,
        );
        let body = r#"{"merchant_id":"M1","data":{"id":"p1","object":{"payment":{"id":"p1","status":"COMPLETED","order_id":"o1","customer_id":"c1"}}}}"#;
        let expected =
            ["object=p1", "object=o1", "user=c1", "account=M1", "provider_status=COMPLETED"];
        assert_eq!(attribute_pairs("square", &[], body), expected);
    }
}

mod stripe {
    use crate::provider::testing::{assert_events, attribute_pairs, verify};
    use crate::verify::VerifyError;

    #[test]
    fn key_is_the_event_id() {
        assert_events(
            "stripe",
            &[],
            r#"
            case | body | kind | key | ordering key
            typical | {"id":"evt_1","type":"charge.refunded","data":{"object":{"id":"ch_1"}}} | charge.refunded | stripe:evt_1 | ch_1
            an upcoming invoice has no id | {"id":"evt_2","type":"invoice.upcoming","data":{"object":{"object":"invoice"}}} | invoice.upcoming | stripe:evt_2 | -
            thin | {"id":"evt_3","object":"v2.core.event","type":"v1.billing.meter.no_meter_found","related_object":{"id":"mtr_1"}} | v1.billing.meter.no_meter_found | stripe:evt_3 | mtr_1
            no id | {"type":"a.b"} | a.b | - | -
            not JSON | id=evt_1 | - | - | -
            a list | [{"id":"evt_1"}] | - | - | -
            "#,
        );
    }

    #[test]
    fn attributes_include_customer_account_and_error() {
        let body = r#"{"id":"evt_1","account":"acct_1","data":{"object":{"id":"ch_1","status":"failed",
            "customer":"cus_1","payment_intent":"pi_1","receipt_email":"Ana@example.com",
            "last_payment_error":{"code":"card_declined"}}}}"#;
        let expected = [
            "object=ch_1",
            "object=pi_1",
            "email=Ana@example.com",
            "user=cus_1",
            "error=card_declined",
            "account=acct_1",
            "provider_status=failed",
        ];
        assert_eq!(attribute_pairs("stripe", &[], body), expected);
        // An expanded customer is an object, not an id.
        let body = r#"{"data":{"object":{"customer":{"id":"cus_1"}}}}"#;
        assert!(attribute_pairs("stripe", &[], body).is_empty());
    }

    #[test]
    fn any_v1_signature_is_accepted_and_v0_is_ignored() {
        // HMAC-SHA256 of `1000.{}` with the key `whsec_test`, and another one.
        let real = "291d03e2e8ca99ce6b2dd4a86974b888822bbc53e44c7c5718da223c4c86d444";
        let other = "292d03e2e8ca99ce6b2dd4a86974b888822bbc53e44c7c5728da223c4c86d444";
        let cases = [
            ("one", format!("t=1000,v1={real}"), 1000, Ok(0)),
            ("rotating", format!("t=1000,v1={other},v1={real}"), 1000, Ok(0)),
            ("also a test one", format!("t=1000,v0={other},v1={real}"), 1000, Ok(0)),
            ("300 s old", format!("t=1000,v1={real}"), 1300, Ok(0)),
            ("301 s old", format!("t=1000,v1={real}"), 1301, Err("stale")),
            ("only a test one", format!("t=1000,v0={real}"), 1000, Err("missing_signature")),
            ("wrong", format!("t=1000,v1={other}"), 1000, Err("mismatch")),
            ("another time", format!("t=1001,v1={real}"), 1000, Err("mismatch")),
            ("no time", format!("v1={real}"), 1000, Err("missing_timestamp")),
        ];
        for (name, header, now, expected) in cases {
            let result =
                verify("stripe", &["whsec_test"], &[("stripe-signature", &header)], "{}", now);
            let result = result.map(|verified| verified.secret_index);
            assert_eq!(
                result.as_ref().map_err(VerifyError::code),
                expected.as_ref().map_err(|c| *c),
                "case: {name}"
            );
        }
    }
}

mod typeform {
    use crate::provider::testing::{attribute_pairs, summary, verify};

    #[test]
    fn key_is_the_event_id_and_not_the_form_id() {
        let body = r#"{"event_id":"E1","event_type":"form_response","form_response":{"form_id":"F1","token":"t1","hidden":{"email":"ana@example.com"}}}"#;
        assert_eq!(summary("typeform", &[], body), ["form_response", "typeform:E1", "F1"]);
        assert_eq!(
            attribute_pairs("typeform", &[], body),
            ["object=t1", "email=ana@example.com", "account=F1"]
        );
        assert_eq!(summary("typeform", &[], r#"{"event_type":"x"}"#), ["x", "-", "-"]);
        assert_eq!(summary("typeform", &[], "x"), ["-", "-", "-"]);
    }

    #[test]
    fn signature_must_be_base64() {
        // HMAC-SHA256 of `{}` with the key `secret`, in both spellings.
        let base64 = "sha256=dzJZAsrKgS3CWXM6rNBGtzgXNyx3e42VtAJkdHRRbhM=";
        let hex = "sha256=77325902caca812dc259733aacd046b73817372c777b8d95b402647474516e13";
        let check = |value: &str| {
            verify("typeform", &["secret"], &[("typeform-signature", value)], "{}", 0).is_ok()
        };
        assert_eq!([check(base64), check(&base64[7..]), check(hex)], [true, false, false]);
    }
}

mod n8n {
    use crate::provider::testing::{summary, verify};

    #[test]
    fn key_is_only_taken_from_explicit_fields() {
        let header = ("idempotency-key", "h-1");
        let quoted = ("idempotency-key", "\"h-1\"");
        let cases: [(_, &[_], _, _); 9] = [
            ("a header", &[header], r#"{"idempotency_key":"b-1"}"#, ["-", "h-1", "-"]),
            ("a quoted header", &[quoted], "{}", ["-", "h-1", "-"]),
            ("a field", &[], r#"{"event":"a","idempotency_key":"b-1","id":5}"#, ["a", "b-1", "-"]),
            (
                "a field inside",
                &[],
                r#"{"event_type":"b","data":{"idempotency_key":"d-1","messageId":"m-1"}}"#,
                ["b", "d-1", "-"],
            ),
            ("a message", &[], r#"{"type":"c","data":{"messageId":"m-1"}}"#, ["c", "m-1", "-"]),
            (
                "the id of a row is not a key",
                &[],
                r#"{"event":"row.changed","id":5}"#,
                ["row.changed", "-", "-"],
            ),
            ("two headers", &[header, header], "{}", ["-", "rules", "-"]),
            ("a kind that is not a text", &[], r#"{"event":{"a":1},"type":"c"}"#, ["c", "-", "-"]),
            ("not JSON", &[], "x", ["-", "-", "-"]),
        ];
        for (name, headers, body, expected) in cases {
            assert_eq!(summary("n8n", headers, body), expected, "case: {name}");
        }
    }

    #[test]
    fn only_a_valid_signature_is_accepted() {
        // HMAC-SHA256 of `{}` with the key `secret`.
        let hex = "77325902caca812dc259733aacd046b73817372c777b8d95b402647474516e13";
        let prefixed = format!("sha256={hex}");
        for preset in ["n8n", "evonexus"] {
            let check =
                |name, value: &str| verify(preset, &["secret"], &[(name, value)], "{}", 0).is_ok();
            assert!(check("x-webhook-signature", hex) && check("x-webhook-signature", &prefixed));
            assert!(check("x-signature", hex) && check("x-signature", &prefixed));
            assert!(!check("x-webhook-signature", "secret") && !check("authorization", "secret"));
            assert!(!check("x-webhook-signature", &format!("sha1={hex}")));
            // The first header counts, even if the second one is right.
            let both = [("x-signature", hex), ("x-webhook-signature", &hex.replace('1', "2"))];
            assert!(verify(preset, &["secret"], &both, "{}", 0).is_err());
        }
    }
}

mod evonexus {
    use crate::provider::testing::{assert_events, attribute_pairs};

    #[test]
    fn keys_and_kinds_follow_the_evonexus_receiver() {
        assert_events(
            "evonexus",
            &[],
            r#"
            case | body | kind | key | ordering key
            all of them | {"idempotency_key":"a","messageId":"b","data":{"messageId":"c","idempotency_key":"d"},"event_type":"k","event":"l"} | k | a | -
            a message | {"messageId":"b","data":{"messageId":"c"},"event":"l"} | l | b | -
            a message inside | {"data":{"messageId":"c","idempotency_key":"d"}} | - | c | -
            a key inside | {"data":{"idempotency_key":"d"}} | - | d | -
            none | {"id":1,"data":[]} | - | - | -
            a list | [{"idempotency_key":"a"}] | - | - | -
            "#,
        );
    }

    #[test]
    fn attributes_include_message_id_and_sender() {
        let body = r#"{"data":{"messageId":"3EB0","from":"5511987654321@s.whatsapp.net"}}"#;
        assert_eq!(
            attribute_pairs("evonexus", &[], body),
            ["message_id=3EB0", "phone=5511987654321"]
        );
    }
}

mod docusign {
    use crate::provider::testing::{TestCall, assert_events, attribute_pairs};

    const KEY: &str = "Zm9yIHRlc3Rpbmcgb25seTogYSBrZXkgb2YgMzIgYnl0ZXM=";

    fn call() -> TestCall {
        TestCall::new("docusign", KEY).body(r#"{"event":"envelope-completed"}"#).signed()
    }

    #[test]
    fn a_signature_in_any_of_the_headers_is_accepted() {
        let (first, second) = ("x-docusign-signature-1", "x-docusign-signature-2");
        let other = TestCall::new("docusign", "the key of another listener")
            .body(r#"{"event":"envelope-completed"}"#);
        let signature = |call: &TestCall| call.signature().unwrap().headers[0].1.clone();
        let (ours, theirs) = (signature(&call()), signature(&other));
        let cases = [
            ("one", call(), Ok(0)),
            ("the first of two", call().header(second, &theirs), Ok(0)),
            ("the second of two", call().header(first, &theirs).header(second, &ours), Ok(0)),
            (
                "the tenth alone",
                call().without(first).header("x-docusign-signature-10", &ours),
                Ok(0),
            ),
            ("beside one that is no signature", call().header(second, "x"), Ok(0)),
            ("an older key", call().secrets(&["other", KEY]), Ok(1)),
            ("another key", call().header(first, &theirs), Err("mismatch")),
            ("another body", call().body("{}"), Err("mismatch")),
            ("none", call().without(first), Err("missing_signature")),
            ("not base64", call().header(first, "x"), Err("malformed")),
        ];
        for (name, call, expected) in cases {
            assert_eq!(call.verify(), expected, "case: {name}");
        }
        call().assert_every_bit_counts(&[first]);
    }

    #[test]
    fn key_includes_recipient_and_time() {
        assert_events(
            "docusign",
            &[],
            r#"
            case | body | kind | key | ordering key
            envelope | {"event":"envelope-sent","configurationId":7,"generatedDateTime":"t","data":{"envelopeId":"e1"}} | envelope-sent | docusign:7:e1:envelope-sent:-:t | e1
            recipient | {"event":"recipient-completed","generatedDateTime":"t","data":{"envelopeId":"e1","recipientId":"2"}} | recipient-completed | docusign:-:e1:recipient-completed:2:t | e1
            no time | {"event":"envelope-sent","data":{"envelopeId":"e1"}} | envelope-sent | - | e1
            XML | <DocuSignEnvelopeInformation/> | - | - | -
            "#,
        );
        let body = r#"{"data":{"accountId":"a","userId":"u","envelopeId":"e","envelopeSummary":{"status":"sent","sender":{"email":"ana@example.com"}}}}"#;
        let expected =
            ["object=e", "email=ana@example.com", "user=u", "account=a", "provider_status=sent"];
        assert_eq!(attribute_pairs("docusign", &[], body), expected);
    }
}

mod intercom {
    use http::{HeaderMap, Method};

    use crate::provider::{
        HandshakeRequest, ProviderReply, find,
        testing::{TestCall, assert_events, attribute_pairs, part, verify},
    };

    /// `printf '{}' | openssl dgst -sha1 -hmac client-secret-of-the-app`
    #[test]
    fn body_is_signed_with_sha1() {
        let signed = [("x-hub-signature", "sha1=d423a2790a7f94b9eda6bfc7e400ccefa577fc9a")];
        let check = |secret, body| verify("intercom", &[secret], &signed, body, 0).is_ok();
        assert!(check("client-secret-of-the-app", "{}"));
        assert!(!check("client-secret-of-the-app", "{ }") && !check("another", "{}"));
        let call = TestCall::new("intercom", "client-secret-of-the-app").body("{}").signed();
        call.assert_every_bit_counts(&[]);
    }

    #[test]
    fn head_request_is_answered() {
        for preset in ["intercom", "trello"] {
            let answer = |method: &Method| {
                let (headers, verify_token) = (&HeaderMap::new(), None);
                let request =
                    HandshakeRequest { method, query: None, headers, body: b"", verify_token };
                find(preset).unwrap().answer_handshake(&request)
            };
            let accepted = Some(Ok(ProviderReply::empty(http::StatusCode::OK)));
            assert_eq!(answer(&Method::HEAD), accepted, "{preset}");
            assert_eq!((answer(&Method::GET), answer(&Method::POST)), (None, None), "{preset}");
        }
    }

    #[test]
    fn notifications_are_keyed_by_id() {
        assert_events(
            "intercom",
            &[],
            r#"
            case | body | kind | key | ordering key
            notification | {"id":"notif_1","app_id":"a","topic":"conversation.user.replied","data":{"item":{"id":"7"}}} | conversation.user.replied | intercom:a:notif_1 | 7
            ping | {"id":null,"app_id":"a","topic":"ping"} | ping | - | -
            not JSON | x | - | - | -
            "#,
        );
        assert!(part("intercom", &[], r#"{"topic":"ping"}"#).is_ping);
        assert!(!part("intercom", &[], r#"{"topic":"contact.created"}"#).is_ping);
        let body =
            r#"{"app_id":"a","data":{"item":{"id":"7","email":"ana@example.com","state":"open"}}}"#;
        let expected = ["object=7", "email=ana@example.com", "account=a", "provider_status=open"];
        assert_eq!(attribute_pairs("intercom", &[], body), expected);
    }
}

mod sentry {
    use crate::provider::testing::{TestCall, attribute_pairs, summary, verify};

    /// `printf '{"action":"created"}' | openssl dgst -sha256 -hmac client-secret`
    #[test]
    fn body_is_signed_in_hex() {
        let signed = [(
            "sentry-hook-signature",
            "1c20166a5a6576f55b72d626aefc22c6e73a252e1f4cc8e87dc0ede1cdf4b5bc",
        )];
        let check = |secret, body| verify("sentry", &[secret], &signed, body, 0).is_ok();
        assert!(check("client-secret", r#"{"action":"created"}"#));
        assert!(!check("client-secret", "{}") && !check("another", r#"{"action":"created"}"#));
        let call = TestCall::new("sentry", "client-secret").body("{}").signed();
        call.assert_every_bit_counts(&["sentry-hook-signature"]);
    }

    #[test]
    fn resource_and_request_id_come_from_headers() {
        let (id, resource) = (("request-id", "r1"), ("sentry-hook-resource", "issue"));
        let issue =
            r#"{"action":"created","installation":{"uuid":"i"},"data":{"issue":{"id":"7"}}}"#;
        let alert = r#"{"action":"triggered","data":{"event":{"issue_id":"8"}}}"#;
        let cases: [(_, &[_], _, _); 4] = [
            ("issue", &[id, resource], issue, ["issue.created", "sentry:i:r1", "7"]),
            ("no resource", &[id], alert, ["triggered", "sentry:-:r1", "8"]),
            ("no id", &[resource], issue, ["issue.created", "-", "7"]),
            ("not JSON", &[id], "x", ["-", "sentry:-:r1", "-"]),
        ];
        for (name, headers, body, expected) in cases {
            assert_eq!(summary("sentry", headers, body), expected, "case: {name}");
        }
        assert_eq!(attribute_pairs("sentry", &[], issue), ["object=7", "account=i"]);
    }
}

mod trello {
    use crate::provider::testing::{TestCall, assert_events, attribute_pairs};

    const SIGNATURE: &str = "x-trello-webhook";

    /// `printf '{"action":{}}https://gw.test/in/trello' | openssl dgst -sha1 -hmac application-secret -binary | base64`
    #[test]
    fn body_and_url_are_signed() {
        let url = "https://gw.test/in/trello";
        let call = TestCall::new("trello", "application-secret").url(url).body(r#"{"action":{}}"#);
        let good = call.header(SIGNATURE, "64STv/RMa84ucQXD4O5lfC1pnGg=");
        let mut unknown = good.clone();
        unknown.knows_origin = false;
        let cases = [
            ("good", good.clone(), Ok(0)),
            ("another URL", good.clone().url("https://gw.test/in/other"), Err("mismatch")),
            ("a query", good.clone().url(format!("{url}?a=1")), Err("mismatch")),
            ("another body", good.clone().body("{}"), Err("mismatch")),
            ("another secret", good.clone().secrets(&["other"]), Err("mismatch")),
            ("no signature", good.clone().without(SIGNATURE), Err("missing_signature")),
            ("no public URL", unknown, Err("unknown_address")),
        ];
        for (name, call, expected) in cases {
            assert_eq!(call.verify(), expected, "case: {name}");
        }
        good.assert_every_bit_counts(&[SIGNATURE]);
    }

    #[test]
    fn actions_are_keyed_by_model_and_id() {
        assert_events(
            "trello",
            &[],
            r#"
            case | body | kind | key | ordering key
            card | {"model":{"id":"m"},"action":{"id":"a","type":"updateCard","data":{"card":{"id":"c"},"board":{"id":"b"}}}} | updateCard | trello:m:a | c
            board | {"model":{"id":"m"},"action":{"id":"a","type":"updateBoard","data":{"board":{"id":"b"}}}} | updateBoard | trello:m:a | b
            no action | {"model":{"id":"m"}} | - | - | m
            not JSON | x | - | - | -
            "#,
        );
        let body =
            r#"{"model":{"id":"m"},"action":{"idMemberCreator":"u","data":{"card":{"id":"c"}}}}"#;
        assert_eq!(attribute_pairs("trello", &[], body), ["object=c", "user=u", "account=m"]);
    }
}
