/* pems.h — certificates and keys for tests that load them: P-256, until 2126, keys that open
 * nothing. Made with `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes`. */
#ifndef HARNESS_PEMS_H
#define HARNESS_PEMS_H

/* One.test (capital, as it stands there) and *.one.test. */
#define PEM_ONE_CRT                                                      \
    "-----BEGIN CERTIFICATE-----\n"                                      \
    "MIIBnTCCAUOgAwIBAgITfztWjczGHWWYGZLqVDAO9RJsMzAKBggqhkjOPQQDAjAT\n" \
    "MREwDwYDVQQDDAhvbmUudGVzdDAgFw0yNjExMjkyMDQ2MzBaGA8yMTI2MTEwNTIw\n" \
    "NDYzMFowEzERMA8GA1UEAwwIb25lLnRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMB\n" \
    "BwNCAATQ3drh7MrMYjLw0juLTdTMTCErgKHl04FHIpvaracOtX2EKkc3zWYeu4ca\n" \
    "ovyijuCQ83wFzQ8ZcTIPFg+CyYwfo3QwcjAdBgNVHQ4EFgQU08s68LlMT0267fAJ\n" \
    "CMisxjCfg1AwHwYDVR0jBBgwFoAU08s68LlMT0267fAJCMisxjCfg1AwDwYDVR0T\n" \
    "AQH/BAUwAwEB/zAfBgNVHREEGDAWgghPbmUudGVzdIIKKi5vbmUudGVzdDAKBggq\n" \
    "hkjOPQQDAgNIADBFAiB2bqI9IpdgYfADkMF+OIfn7ByQjFTeVL9SAF380FgV1AIh\n" \
    "AKhx4wMEDx74lgaL7a9vMLkVJL09NzlS7AXgQpRNvY4V\n"                     \
    "-----END CERTIFICATE-----\n"
#define PEM_ONE_KEY                                                      \
    "-----BEGIN PRIVATE KEY-----\n"                                      \
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgeHrsOg7S+TuNXwha\n" \
    "cc3fXMfNnui5aOFpXzaOYGFlMk2hRANCAATQ3drh7MrMYjLw0juLTdTMTCErgKHl\n" \
    "04FHIpvaracOtX2EKkc3zWYeu4caovyijuCQ83wFzQ8ZcTIPFg+CyYwf\n"         \
    "-----END PRIVATE KEY-----\n"

/* two.test, *.two.test, and names of the first: one.test, x.one.test. */
#define PEM_TWO_CRT                                                      \
    "-----BEGIN CERTIFICATE-----\n"                                      \
    "MIIBtjCCAVygAwIBAgIUWi5cQu9MuHouga0z8efPchUUTzswCgYIKoZIzj0EAwIw\n" \
    "EzERMA8GA1UEAwwIdHdvLnRlc3QwIBcNMjYxMTI5MjA0NjMwWhgPMjEyNjExMDUy\n" \
    "MDQ2MzBaMBMxETAPBgNVBAMMCHR3by50ZXN0MFkwEwYHKoZIzj0CAQYIKoZIzj0D\n" \
    "AQcDQgAEYqHgz9bWtBT4ansPoP4B1l0m3EHMkky3XVqoo+VQMzZSbp6Y1i5ahEtG\n" \
    "+u0X8Dj7ZKPY81v1YNu4lQ1UQurs7aOBizCBiDAdBgNVHQ4EFgQUJ82qPzgOBz9x\n" \
    "8CAOGY7MFBljdnwwHwYDVR0jBBgwFoAUJ82qPzgOBz9x8CAOGY7MFBljdnwwDwYD\n" \
    "VR0TAQH/BAUwAwEB/zA1BgNVHREELjAsggh0d28udGVzdIIIb25lLnRlc3SCCiou\n" \
    "dHdvLnRlc3SCCngub25lLnRlc3QwCgYIKoZIzj0EAwIDSAAwRQIhAMbGR7V0EWAl\n" \
    "Hzx0bn9UBoMXioeESx8jcgGBJxcLfb1bAiA/KMGPO/hFyt7zD3sTRNRCtmkl/bSo\n" \
    "N8VluBCZGyl0rw==\n"                                                 \
    "-----END CERTIFICATE-----\n"
#define PEM_TWO_KEY                                                      \
    "-----BEGIN PRIVATE KEY-----\n"                                      \
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg8DlaH+/uHh7obcfq\n" \
    "zhlwurQeB0rUi02Kh7QAoRO0lMqhRANCAARioeDP1ta0FPhqew+g/gHWXSbcQcyS\n" \
    "TLddWqij5VAzNlJunpjWLlqES0b67RfwOPtko9jzW/Vg27iVDVRC6uzt\n"         \
    "-----END PRIVATE KEY-----\n"

/* No subjectAltName; common name cn.test. */
#define PEM_CN_CRT                                                       \
    "-----BEGIN CERTIFICATE-----\n"                                      \
    "MIIBezCCASGgAwIBAgIUPiT+vn7KwLzjIAtrsy6lE61DWj0wCgYIKoZIzj0EAwIw\n" \
    "EjEQMA4GA1UEAwwHY24udGVzdDAgFw0yNjExMjkyMDQ2MzBaGA8yMTI2MTEwNTIw\n" \
    "NDYzMFowEjEQMA4GA1UEAwwHY24udGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEH\n" \
    "A0IABJwgjtzVay/X0b0563y38KTlpn/RnWX6maUHsoS5uBjmuDqz1Qkdnu4GsE+l\n" \
    "SFSIHw2n9T50Ik1PhqVzGZnQnn2jUzBRMB0GA1UdDgQWBBTtReJqUSPWGGU1zZxw\n" \
    "F7AJKY7gbTAfBgNVHSMEGDAWgBTtReJqUSPWGGU1zZxwF7AJKY7gbTAPBgNVHRMB\n" \
    "Af8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIH6ECkZ3Iln0HG6jCryuC+cvKKO4\n" \
    "Hy17OSsccQ1Nm8b/AiEA+ryrvWqV6MzHc2J8TgZdePFRP1tR2yOlhPZi+H3+37Y=\n" \
    "-----END CERTIFICATE-----\n"
#define PEM_CN_KEY                                                       \
    "-----BEGIN PRIVATE KEY-----\n"                                      \
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQghP3HXH2CtwTwutBl\n" \
    "69PAWx8+z9NQgm9S9EDSiPbsneyhRANCAAScII7c1Wsv19G9Oet8t/Ck5aZ/0Z1l\n" \
    "+pmlB7KEubgY5rg6s9UJHZ7uBrBPpUhUiB8Np/U+dCJNT4alcxmZ0J59\n"         \
    "-----END PRIVATE KEY-----\n"

/* Ended in 2002; common name old.test. */
#define PEM_OLD_CRT                                                      \
    "-----BEGIN CERTIFICATE-----\n"                                      \
    "MIIBDDCBtAIBATAKBggqhkjOPQQDAjATMREwDwYDVQQDDAhvbGQudGVzdDAeFw0w\n" \
    "MTAxMDEwMDAwMDBaFw0wMjAyMDIwMDAwMDBaMBMxETAPBgNVBAMMCG9sZC50ZXN0\n" \
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEf58cKEH+QsSOaTZMrB1X2dtOijQG\n" \
    "TuK7KgHfRKgfCtZ7cbeOvQWx2eLEd5H73NeCf2xJcchKI+h7xt5QalYr/zAKBggq\n" \
    "hkjOPQQDAgNHADBEAiBD38a6c8ZKDX1LxL5OyyD2K0ZamQ5v5vNNXNMFFyzeBAIg\n" \
    "V7Mfwsms93mokoQAFIV3iArQQYTaEaYLxogchSCavYQ=\n"                     \
    "-----END CERTIFICATE-----\n"
#define PEM_OLD_KEY                                                      \
    "-----BEGIN PRIVATE KEY-----\n"                                      \
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgGcrcJvGtnKzJc7JF\n" \
    "rGrAbhnhp+eOqMbsZu1m3CBN6T+hRANCAAR/nxwoQf5CxI5pNkysHVfZ206KNAZO\n" \
    "4rsqAd9EqB8K1ntxt469BbHZ4sR3kfvc14J/bElxyEoj6HvG3lBqViv/\n"         \
    "-----END PRIVATE KEY-----\n"

/* No subjectAltName; a common name with a quote, a backslash, a line feed and braces. */
#define PEM_ODD_CRT                                                      \
    "-----BEGIN CERTIFICATE-----\n"                                      \
    "MIIBITCBx6ADAgECAgEHMAoGCCqGSM49BAMCMBkxFzAVBgNVBAMMDm9kImRcCnt4\n" \
    "fS50ZXN0MCAXDTI2MTEyOTAwMDAwMFoYDzIxMjYxMTA1MDAwMDAwWjAZMRcwFQYD\n" \
    "VQQDDA5vZCJkXAp7eH0udGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABKKD\n" \
    "aRMe2WNDDtOJYbB4MwxZaeSD9F0+nv2IHH497QzNSS6BszAf09tjTpFvd4m8a+Rs\n" \
    "7wtm96EHSlSyZyjPr6cwCgYIKoZIzj0EAwIDSQAwRgIhAOKya3v4+9CeZ7e1/zcg\n" \
    "qK7CdjnDZUkutGJw9hFSlGl+AiEAvZYkZ87Lpd6sUwF5D7aiHyyPU+eUZYSUU79N\n" \
    "CQrqxRY=\n"                                                         \
    "-----END CERTIFICATE-----\n"
#define PEM_ODD_KEY                                                      \
    "-----BEGIN PRIVATE KEY-----\n"                                      \
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgAbT4BJ9I04WoSAoD\n" \
    "Lc1A0BIabt+TinzJeW5wJq7KxBKhRANCAASig2kTHtljQw7TiWGweDMMWWnkg/Rd\n" \
    "Pp79iBx+Pe0MzUkugbMwH9PbY06Rb3eJvGvkbO8LZvehB0pUsmcoz6+n\n"         \
    "-----END PRIVATE KEY-----\n"

#endif
